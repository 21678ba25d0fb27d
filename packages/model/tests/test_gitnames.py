# SPDX-License-Identifier: Apache-2.0
"""Names that reach git: what passes, and what is refused with a sentence."""

import copy
import pickle

import pytest

from pipecd_model.errors import ConfigError
from pipecd_model.gitnames import (
    BadGitNameError,
    BranchName,
    CommitHash,
    RemoteAddress,
    RepositoryPath,
    check_commit,
)

SHA1 = "0123456789abcdef0123456789abcdef01234567"
SHA256 = SHA1 + "0123456789abcdef01234567"


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "feature/c++",
        "a.b/c-d_e",
        "v1.0",
        "größe",
        "x@y",
        "@x",
        "refs/heads/x",
        "🚀",
        "a{b}",
    ],
)
def test_the_name_of_a_branch_passes(name: str) -> None:
    assert BranchName(name) == name
    assert BranchName(name).ref == f"refs/heads/{name}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("-", "begins with '-'"),
        ("--upload-pack=touch /tmp/x", "begins with '-'"),
        ("+main", "begins with '+'"),
        ("evil:refs/replace/0123", "':'"),
        ("^main", "'^'"),
        ("main~1", "'~'"),
        ("main^{/x}", "'^'"),
        ("*", "'*'"),
        ("a?", "'?'"),
        ("a[b", "'['"),
        ("a\\b", "character"),
        ("a b", "' '"),
        ("a\tb", "character"),
        ("a\nb", "character"),
        ("a\0b", "character"),
        ("a\x7fb", "character"),
        ("a\x85b", "character"),
        ("a\u2028b", "character"),
        ("a\u202eb", "character"),
        ("a\u00a0b", "character"),
        ("a\ud800b", "character"),
        ("a..b", "'..'"),
        ("@{-1}", "'@{'"),
        ("main@{1}", "'@{'"),
        ("@", "HEAD"),
        ("HEAD", "HEAD"),
        ("/main", "begins with '/'"),
        ("main/", "ends with '/'"),
        ("a//b", "'//'"),
        ("main.", "ends with '.'"),
        (".main", "begins with '.'"),
        ("a/.b", "begins with '.'"),
        ("main.lock", "'.lock'"),
        ("a.lock/b", "'.lock'"),
        ("x" * 1025, "longer"),
        ("ö" * 513, "longer"),
    ],
)
def test_what_git_would_read_as_something_else_is_no_branch(name: str, why: str) -> None:
    with pytest.raises(BadGitNameError, match="is not the name of a branch") as refused:
        BranchName(name)

    assert why in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    assert isinstance(refused.value, ConfigError)


def test_a_checked_name_stays_one_when_it_is_copied() -> None:
    name = BranchName("main")

    assert type(copy.copy(name)) is BranchName
    assert type(pickle.loads(pickle.dumps(name))) is BranchName  # noqa: S301 - our own
    assert type(name + ":refs/replace/x") is str


@pytest.mark.parametrize("name", [SHA1, SHA256, SHA1.upper()])
def test_a_whole_hash_names_a_commit(name: str) -> None:
    assert CommitHash(name) == name.lower()


@pytest.mark.parametrize(
    "name", ["", "main", "HEAD", SHA1[:-1], SHA1 + "0", SHA1 + "\n", f"{SHA1}^", f"-{SHA1[1:]}"]
)
def test_what_is_no_whole_hash_is_no_commit(name: str) -> None:
    with pytest.raises(BadGitNameError, match="is not the hash of a commit"):
        CommitHash(name)


def test_the_beginning_of_a_hash_can_be_asked_for() -> None:
    for name in ("c0ffee", SHA1, SHA256, "C0FFEE"):
        check_commit(name)
    for name in ("", "abc", "main", "c0ffee^", "c0ffee\n", "--all", SHA256 + "0"):
        with pytest.raises(BadGitNameError):
            check_commit(name)


@pytest.mark.parametrize(
    "address",
    [
        "git@github.com:org/name.git",
        "https://user:pw@host.example:8443/o/n.git",
        "ssh://git@host.example:2222/o/n.git",
        "ssh://git@[::1]:22/o/n.git",
        "file:///srv/git/name.git",
        "/srv/git/a name.git",
        "../name",
        "host:-path",
        "git@[::1]:o/n.git",
    ],
)
def test_the_address_of_a_repository_passes(address: str) -> None:
    assert RemoteAddress(address) == address
    assert RemoteAddress(address).helper == ""


def test_a_remote_helper_is_named() -> None:
    assert RemoteAddress("codecommit::eu-west-1://name").helper == "codecommit"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "--upload-pack=touch x",
        "-oProxyCommand=x:y",
        "ext::sh -c touch% x",
        "fd::7",
        "Ext::sh",
        "::x",
        "a b::c",
        "ssh://-oProxyCommand=touch/x",
        "ssh://git@-oProxyCommand=touch/x",
        "git@-oProxyCommand=touch:x",
        "javascript://x",
        "ftp://host/x",
        "https://host/x\nurl = ext::x",
        "host:a\0b",
    ],
)
def test_an_address_that_runs_something_is_none(address: str) -> None:
    with pytest.raises(BadGitNameError, match="is not the address of a repository"):
        RemoteAddress(address)


def test_a_path_is_brought_to_its_shortest_form() -> None:
    assert RepositoryPath("a/./b//c/../d") == "a/b/d"
    assert RepositoryPath(".") == ""
    assert RepositoryPath("-dash/ö") == "-dash/ö"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a\nb",
        "a\0b",
        "a\rb",
        ".git/config",
        "a/.GIT/x",
        "x" * 4097,
    ],
)
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(BadGitNameError, match="is not inside the repository"):
        RepositoryPath(path)
