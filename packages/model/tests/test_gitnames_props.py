# SPDX-License-Identifier: Apache-2.0
"""Names of branches: for every text we agree with the git of this machine."""

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipecd_model.gitnames import BadGitNameError, BranchName

# Mostly what has a meaning for git, so that the rules meet each other.
pieces = st.sampled_from(
    [*"ab.-+@{}/:^~?*[]\\ \t\n\x7f", "..", "@{", ".lock", "HEAD", "refs/heads/", "ö", "\u2028"]
)
names = st.one_of(
    st.lists(pieces, min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
).filter(lambda name: "\0" not in name)


def git_takes(*arguments: str) -> bool:
    command = ["git", "check-ref-format", *arguments]
    return subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0


def we_take(name: str) -> bool:
    try:
        BranchName(name)
    except BadGitNameError:
        return False
    return True


def is_beyond_git(name: str) -> bool:
    """Do we refuse it although git does not? These are said in the docstring of BranchName."""
    return name[0] == "+" or name == "@" or not all(each.isprintable() for each in name)


@settings(max_examples=300, deadline=None)
@given(names)
@example("@")
@example("HEAD")
@example("a.lock/b")
@example("@{-1}")
def test_a_name_passes_exactly_when_git_takes_it(name: str) -> None:
    takes = git_takes("--branch", name) and git_takes(f"refs/heads/{name}")

    if we_take(name):
        assert takes
    elif takes:
        assert is_beyond_git(name)


@pytest.mark.parametrize("name", ["main", "feature/x", "a.b"])
def test_git_itself_is_asked(name: str) -> None:
    assert git_takes("--branch", name)
    assert not git_takes("--branch", f"{name}..")
