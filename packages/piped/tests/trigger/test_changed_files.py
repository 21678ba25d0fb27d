# SPDX-License-Identifier: Apache-2.0
"""Changed files by folder: the same answer as looking at all of them."""

import string

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model import trigger
from pipecd_model.config import load_application
from pipecd_piped.trigger.decide import ChangedFiles

CONFIG = load_application(
    "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {name: a}\n", file="a"
).config
ELSEWHERE = load_application(
    "apiVersion: pipecd.dev/v1beta1\nkind: Application\n"
    "spec: {name: a, trigger: {onCommit: {paths: [shared]}}}\n",
    file="a",
).config

part = st.text(alphabet="ab-./0" + string.whitespace[0], min_size=1, max_size=3).filter(
    lambda text: "/" not in text and text not in {".", ".."}
)
path = st.lists(part, min_size=1, max_size=4).map("/".join)


@given(st.lists(path), path)
def test_an_application_sees_exactly_the_files_of_its_folder(paths: list[str], folder: str) -> None:
    seen = ChangedFiles(paths).list_for(CONFIG, folder)

    assert sorted(seen) == sorted(each for each in paths if each.startswith(f"{folder}/"))
    assert trigger.is_touched(seen, app_dir=folder, paths=(), ignores=()) == trigger.is_touched(
        paths, app_dir=folder, paths=(), ignores=()
    )


def test_an_application_that_names_files_elsewhere_sees_all() -> None:
    changed = ChangedFiles(["b", "a/x"])

    assert changed.list_for(ELSEWHERE, "a") == ["a/x", "b"]
    assert changed.list_for(CONFIG, "") == ["a/x", "b"]
