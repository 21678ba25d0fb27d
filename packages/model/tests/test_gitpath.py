# SPDX-License-Identifier: Apache-2.0
"""Paths that people register: inside the repository, in one line, of a length that git takes."""

import pytest

from pipecd_model.errors import SourceError
from pipecd_model.gitpath import LONGEST_PATH, file_in_repository, path_in_repository


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("apps/web", "apps/web"),
        ("./apps//web/", "apps/web"),
        ("./", ""),
        (".", ""),
        ("a/../b", "b"),
        ("...", "..."),
        ("..a", "..a"),
        ("-h", "-h"),
        (":(glob)*", ":(glob)*"),
        ("ä b", "ä b"),
        ("x" * LONGEST_PATH, "x" * LONGEST_PATH),
    ],
)
def test_a_path_inside_the_repository_is_taken(path: str, clean: str) -> None:
    assert path_in_repository(path) == clean


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../x",
        "a/../../x",
        "/x",
        "//x",
        "a\nb",
        "a\r",
        "a\0",
        "\x1b[2J",
        "\x7f",
        "x" * (LONGEST_PATH + 1),
        "ä" * LONGEST_PATH,
    ],
)
def test_any_other_is_refused_with_a_short_sentence(path: str) -> None:
    with pytest.raises(SourceError) as refused:
        path_in_repository(path)

    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_a_file_is_found_from_its_folder_and_stays_inside() -> None:
    assert file_in_repository("apps/web", "app.pipecd.yaml") == "apps/web/app.pipecd.yaml"
    assert file_in_repository("apps/web", "../app.pipecd.yaml") == "apps/app.pipecd.yaml"
    for filename in ("../../../x", "/etc/passwd", "a\nb"):
        with pytest.raises(SourceError):
            file_in_repository("apps/web", filename)
