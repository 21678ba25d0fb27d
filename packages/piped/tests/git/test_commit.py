# SPDX-License-Identifier: Apache-2.0
"""Commits as anybody may write them, and the pages of commits."""

import pytest

from pipecd_piped.git import commit_url
from pipecd_piped.git.commit import parse_commit

HASH = "a" * 40
AUTHOR = b"author Ada <ada@example.com> 1700000000 +0100\n"


def raw(message: bytes, author: bytes = AUTHOR, more: bytes = b"") -> bytes:
    return (
        b"tree "
        + b"b" * 40
        + b"\n"
        + author
        + b"committer C <c@x> 1 +0000\n"
        + more
        + b"\n"
        + message
    )


def test_the_subject_is_the_first_paragraph_in_one_line() -> None:
    commit = parse_commit(HASH, raw(b"\nFix the\nleaking  tap\n\nIt dripped.\n"))

    assert commit.subject == "Fix the leaking tap"
    assert commit.message == "\nFix the\nleaking  tap\n\nIt dripped.\n"
    assert commit.created_at == 1700000000
    assert commit.short == "aaaaaaa"


def test_trailers_are_read_from_the_last_paragraph_only() -> None:
    message = (
        b"Fix: it\n\nNot: a trailer\n\n"
        b"Reviewed-by: Bo\nPipecd-Dev-Trace-Trigger-Commit-Hash: 12\n  34\n"
    )

    commit = parse_commit(HASH, raw(message))

    assert commit.trailers == {
        "Reviewed-by": "Bo",
        "Pipecd-Dev-Trace-Trigger-Commit-Hash": "12 34",
    }


def test_a_subject_alone_holds_no_trailers() -> None:
    assert parse_commit(HASH, raw(b"Fix: it\n")).trailers == {}


def test_a_signature_is_no_header() -> None:
    signed = raw(
        b"Hello\n", more=b"gpgsig -----BEGIN-----\n author X <x@x> 5 +0000\n -----END-----\n"
    )

    assert parse_commit(HASH, signed).author == "Ada"


def test_texts_in_other_encodings_are_readable() -> None:
    latin = parse_commit(HASH, raw("Größe".encode("latin-1"), more=b"encoding ISO-8859-1\n"))
    unknown = parse_commit(HASH, raw("Größe".encode(), more=b"encoding no-such\n"))
    broken = parse_commit(HASH, raw(b"a\xff\0b"))

    assert latin.subject == "Größe"
    assert unknown.subject == "Größe"
    assert broken.subject == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    "encoding",
    [
        b"undefined",
        b"idna",
        b"utf-7",
        b"unicode_escape",
        b"raw_unicode_escape",
        b"utf-16",
        b"punycode",
        b"rot13",
        b"zlib",
        b"a\0b",
        b"../etc",
        b"\xff",
        b"x" * 100_000,
    ],
)
def test_no_encoding_makes_a_message_that_cannot_be_told(encoding: bytes) -> None:
    commit = parse_commit(HASH, raw(rb"+2AA- \ud800 text", more=b"encoding " + encoding + b"\n"))

    assert commit.message.encode()
    assert "\0" not in commit.message


def test_a_commit_of_any_size_is_read_at_once() -> None:
    million = 1_000_000
    authors = (b" " * million, b"A" * million, b"A <a@b> " + b"9" * million, b"<" * million)
    for author in authors:
        commit = parse_commit(HASH, raw(b"x", b"author " + author + b"\n"))
        assert len(commit.author) <= 1024
        assert 1 <= commit.created_at <= 2**62
    for body in (b"K: v\n" + b" more\n" * million, b"\n \n" * million, b"x" * 10 * million):
        assert len(parse_commit(HASH, raw(b"subject\n\n" + body)).message) <= 65536


@pytest.mark.parametrize(
    ("author", "name", "time"),
    [
        (b"author  <ada@example.com> 5 +0000\n", "ada@example.com", 5),
        (b"author <> 5 +0000\n", "unknown", 5),
        (b"author Ada <ada@example.com> 0 +0000\n", "Ada", 1),
        (b"author Ada <ada@example.com> -5 +0000\n", "Ada", 1),
        (b"author Ada <ada@example.com> 99999999999999999999999 +0000\n", "Ada", 2**62),
        (b"author Ada <ada@example.com>\n", "Ada", 1),
        (b"author nonsense\n", "unknown", 1),
        (b"", "unknown", 1),
    ],
)
def test_odd_authors_still_have_a_name_and_a_time(author: bytes, name: str, time: int) -> None:
    commit = parse_commit(HASH, raw(b"x", author))

    assert (commit.author, commit.created_at) == (name, time)


def test_an_empty_message_is_no_failure() -> None:
    assert parse_commit(HASH, raw(b"")).subject == ""
    assert parse_commit(HASH, b"").author == "unknown"


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("git@github.com:org/repo.git", "https://github.com/org/repo/commit/"),
        ("github.com:org/repo", "https://github.com/org/repo/commit/"),
        ("ssh://git@example.com:2222/org/repo.git", "https://example.com/org/repo/commit/"),
        ("https://user:secret@example.com:8443/a/b.git", "https://example.com:8443/a/b/commit/"),
        ("http://example.com/a/b", "https://example.com/a/b/commit/"),
        ("git@bitbucket.org:org/repo.git", "https://bitbucket.org/org/repo/commits/"),
    ],
)
def test_a_hosted_commit_has_a_page(remote: str, page: str) -> None:
    assert commit_url(remote, HASH) == page + HASH


@pytest.mark.parametrize("remote", ["/srv/repo", "./repo", "file:///srv/repo", "https://x:y/z", ""])
def test_a_commit_that_is_nowhere_hosted_has_none(remote: str) -> None:
    assert commit_url(remote, HASH) == ""


@pytest.mark.parametrize(
    "encoding", [b"punycode", b"idna", b"unicode_escape", b"raw-unicode-escape"]
)
def test_what_is_no_charset_is_not_decoded_by(encoding: bytes) -> None:
    message = rb"bcher-kva \u0041 \x41"

    commit = parse_commit(HASH, raw(message, more=b"encoding " + encoding + b"\n"))

    assert commit.message == message.decode()
