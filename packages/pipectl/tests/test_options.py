# SPDX-License-Identifier: Apache-2.0
"""Values of options that several commands take."""

import click
import pytest

from pipecd_pipectl.options import FOLDER_IN_REPOSITORY
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.rpc.validation import check


@pytest.mark.parametrize(
    ("given", "sent"),
    [("x", "x/"), (".", "./"), ("./", "./"), ("apps/shop", "apps/shop"), ("é", "é/")],
)
def test_a_folder_is_sent_so_that_the_control_plane_takes_it(given: str, sent: str) -> None:
    """The wire refuses a path of one character."""
    folder = FOLDER_IN_REPOSITORY.convert(given, None, None)

    assert folder == sent
    repository = ApplicationGitRepository(id="r")
    assert check(ApplicationGitPath(repo=repository, path=folder, config_filename="f")) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("/absolute", "it begins with '/'"),
        ("/", "it begins with '/'"),
        ("../other", "it leads out with '..'"),
        ("a\x1b[2Jb", "it has the character"),
    ],
)
def test_a_folder_that_is_in_no_repository_is_refused_with_a_sentence(given: str, why: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        FOLDER_IN_REPOSITORY.convert(given, None, None)

    assert why in str(refused.value)
    assert "write the path from the repository's root" in str(refused.value)
