# SPDX-License-Identifier: Apache-2.0
"""A commit as git keeps it, and where a person can look at it."""

import codecs
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit. Texts are readable whatever bytes their author used."""

    hash: str
    subject: str
    """The first paragraph, in one line; may be empty."""
    message: str
    author: str
    """The author's name, or the address of one without a name."""
    created_at: int
    """When it was written, in Unix seconds."""
    trailers: dict[str, str] = field(default_factory=dict)
    """The `Key: value` lines at the end of the message; of two with one key the last counts."""

    @property
    def short(self) -> str:
        """The hash as people write it."""
        return self.hash[:7]


_LONGEST_MESSAGE: Final = 64 * 1024
_LONGEST_AUTHOR: Final = 1024
"""Bytes that are looked at; nobody writes more, and everybody who shows it would have to."""

_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape"})
"""What Python decodes beside the charsets of people; of long texts it takes seconds for some."""

_PERSON: Final = re.compile(r"(?P<name>.*?)\s*<(?P<mail>[^>]*)>\s*(?P<time>-?\d+)?")
_TRAILER: Final = re.compile(r"(?P<key>[A-Za-z0-9][A-Za-z0-9-]*)\s*:\s*(?P<value>.*)")


def parse_commit(commit_hash: str, data: bytes) -> Commit:
    """Read a commit object. Nothing in it can make this fail: anybody can write one."""
    head, _, body = data.partition(b"\n\n")
    headers = dict(_headers(head))
    message = _decode(body[:_LONGEST_MESSAGE], headers.get(b"encoding", b"utf-8"))
    name, mail, time = "", "", 1
    if person := _PERSON.match(_decode(headers.get(b"author", b"")[:_LONGEST_AUTHOR], b"utf-8")):
        name, mail = person["name"].strip(), person["mail"].strip()
        time = int(person["time"] or 1)
    paragraphs = [each for each in re.split(r"\n\s*\n", message.strip()) if each]
    return Commit(
        hash=commit_hash,
        subject=" ".join(paragraphs[0].split()) if paragraphs else "",
        message=message,
        author=name or mail or "unknown",
        created_at=min(max(time, 1), 2**62),  # the wire wants a positive 64-bit number
        trailers=_trailers(paragraphs[-1]) if len(paragraphs) > 1 else {},
    )


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    found = []
    for line in head.split(b"\n"):
        if not line.startswith(b" "):  # a signature goes on over indented lines
            key, _, value = line.partition(b" ")
            found.append((key, value))
    return found


def _decode(data: bytes, encoding: bytes) -> str:
    try:
        codec = codecs.lookup(encoding.decode("ascii", "replace")).name.replace("_", "-")
        text = data.decode("utf-8" if codec in _NO_CHARSETS else codec, "replace")
    except (LookupError, ValueError):  # unknown, no name at all, or none that reads text
        text = data.decode("utf-8", "replace")
    # Some encodings bring halves of characters, which nobody can write down again.
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _trailers(paragraph: str) -> dict[str, str]:
    found: dict[str, str] = {}
    key = ""
    for line in paragraph.splitlines():
        if key and line[:1].isspace():
            found[key] += f" {line.strip()}"
        elif match := _TRAILER.fullmatch(line.strip()):
            key = match["key"]
            found[key] = match["value"].strip()
        else:
            key = ""
    return found


_SCP: Final = re.compile(r"(?:[^@/:]+@)?(?P<host>[^@/:]+):(?P<path>[^/].*|/.+)")
_WEB_SCHEMES: Final = frozenset({"http", "https", "ssh", "git", "git+ssh", "ssh+git"})


def commit_url(remote: str, commit_hash: str) -> str:
    """The page of a commit on its git host; empty for a remote that has no pages."""
    if "://" in remote:
        parts = urlsplit(remote)
        if parts.scheme not in _WEB_SCHEMES or not parts.hostname:
            return ""
        host, path = parts.hostname, parts.path
        try:
            port = parts.port
        except ValueError:
            return ""
        if port and parts.scheme in {"http", "https"}:
            host = f"{host}:{port}"
    elif match := _SCP.fullmatch(remote):
        host, path = match["host"], match["path"]
    else:
        return ""
    path = path.strip("/").removesuffix(".git")
    kind = "commits" if host == "bitbucket.org" else "commit"
    return f"https://{host}/{quote(path)}/{kind}/{commit_hash}"
