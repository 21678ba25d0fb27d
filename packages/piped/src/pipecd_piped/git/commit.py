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
        """The first seven digits of the hash."""
        return self.hash[:7]


_LONGEST_MESSAGE: Final = 64 * 1024
_LONGEST_AUTHOR: Final = 1024
"""Bytes that are read of a message and of an author; the rest is dropped."""

_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape"})
"""Codecs of Python that are no charsets of texts; some take seconds for a long text."""

_PERSON: Final = re.compile(r"(?P<name>.*?)\s*<(?P<mail>[^>]*)>\s*(?P<time>-?\d+)?")
_TRAILER: Final = re.compile(r"(?P<key>[A-Za-z0-9][A-Za-z0-9-]*)\s*:\s*(?P<value>.*)")


def parse_commit(commit_hash: str, data: bytes) -> Commit:
    """Parse a commit object. No content can make this fail: it comes from untrusted authors."""
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
        if not line.startswith(b" "):  # a signature continues on indented lines
            key, _, value = line.partition(b" ")
            found.append((key, value))
    return found


def _decode(data: bytes, encoding: bytes) -> str:
    try:
        codec = codecs.lookup(encoding.decode("ascii", "replace")).name.replace("_", "-")
        text = data.decode("utf-8" if codec in _NO_CHARSETS else codec, "replace")
    except (LookupError, ValueError):  # unknown codec, invalid name, or no text codec
        text = data.decode("utf-8", "replace")
    # Some encodings decode to lone surrogates, which cannot be encoded as UTF-8 again.
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
    """Returns the web page of a commit on its git host; empty for a remote without pages."""
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
