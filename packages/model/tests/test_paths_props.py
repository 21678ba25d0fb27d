# SPDX-License-Identifier: Apache-2.0
"""Path patterns: what holds for every path."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model import paths

names = st.text(alphabet=st.sampled_from("abcxyz019._- "), min_size=1, max_size=6).filter(
    lambda name: name == name.strip() and name not in {".", ".."}
)
files = st.lists(names, min_size=1, max_size=5).map("/".join)


def quoted(path: str) -> str:
    return re.sub(r"([.$*?\\\[\](){}+|^!-])", r"\\\1", path)


@given(files)
def test_a_path_means_itself(path: str) -> None:
    assert paths.matches([quoted(path)], path)


@given(files, files)
def test_a_folder_means_everything_below_it(folder: str, file: str) -> None:
    assert paths.matches([quoted(folder)], f"{folder}/{file}")


@given(files, files)
def test_two_stars_span_any_depth(folder: str, file: str) -> None:
    assert paths.matches(["**"], file)
    assert paths.matches([f"{quoted(folder)}/**"], f"{folder}/{file}")
    assert paths.matches([f"**/{quoted(file)}"], f"{folder}/{file}")


@given(files)
def test_as_many_stars_as_parts_mean_the_path(path: str) -> None:
    parts = path.count("/") + 1

    assert paths.matches(["/".join("*" * parts)], path)
    assert not paths.matches(["/".join("*" * (parts + 1))], path)


@given(st.lists(files, max_size=4), files)
def test_excluding_a_path_beats_every_pattern(others: list[str], path: str) -> None:
    patterns = [quoted(other) for other in others]

    assert not paths.matches([*patterns, "**", f"!{quoted(path)}"], path)


@given(st.text(max_size=20), files)
def test_any_text_is_a_pattern_or_is_refused(pattern: str, path: str) -> None:
    try:
        paths.check(pattern)
    except paths.BadPatternError:
        return
    paths.matches([pattern], path)
