# SPDX-License-Identifier: Apache-2.0
"""Masks known secret values in stage logs, also where a value spans several pieces of the text.

Looked for are values of six characters or more, each line of a longer one, as they are, with other
line breaks, and as JSON, URLs, shells, hexadecimal dumps and base64 write them, also where the
base64 is of something around the value. It is best effort, not a promise: a script can write a
value in a form that is not looked for. The number of forms has a limit, since looking takes time:
of very long values, or very many, first other forms are left out, then single lines.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Final, Self
from urllib.parse import quote

MASK: Final = "***"

_SHORTEST: Final = 6
"""Shorter values are in every other word."""

_SHORTEST_BASE64: Final = 8

LONGEST: Final = 1024
"""Longer values are looked for in pieces: that is how much of a text is held back at most."""

MOST: Final = 20_000
"""Texts that are looked for at most."""

MOST_TOGETHER: Final = 100_000
"""The same for all applications together."""

_ENCODED: Final = 1 << 16
"""Characters of values that are looked for in other forms: there are about twenty of them."""

_LINES: Final = (76, 64)
"""Where programs break long base64."""


class Masker:
    """Masks one stream of text, given in pieces as they come; or single lines."""

    def __init__(self, values: Iterable[str]) -> None:
        self.needles, self.is_complete = _needles(values)
        """What it looks for, and whether that is all that it should look for."""
        self._held = ""
        self._covered = 0  # how much of the front of what is held is masked already

    @classmethod
    def join(cls, maskers: Sequence[Masker]) -> Self:
        """Returns a masker of all values of others; beyond the limit, each gets the same share."""
        parts = [each.needles for each in maskers]
        if sum(map(len, parts)) > MOST_TOGETHER:
            parts = [each[: MOST_TOGETHER // len(parts)] for each in parts]
        new = cls(())
        new.needles = tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))
        return new

    def effort(self, characters: int) -> int:
        """Returns the work of masking this many characters; a million takes some milliseconds."""
        return characters * len(self.needles) // 8

    def fresh(self) -> Self:
        """Returns a masker of the same values for another stream."""
        new = copy(self)
        new.flush()
        return new

    def line(self, text: str) -> str:
        """Returns a complete text masked; does not change the state of the stream."""
        return _mask_found(text, _find_values(text, self.needles), 0, len(text))

    def places(self, text: str) -> list[tuple[int, int]]:
        """Returns begin and end of each value in a text, in order; none overlap."""
        joined: list[tuple[int, int]] = []
        for start, end in _find_values(text, self.needles):
            if joined and start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        return joined

    def count_unfinished(self, text: str) -> int:
        """Returns how many characters at the end of a text may be the beginning of a value."""
        return len(text) - _may_become(text, self.needles)

    def __bool__(self) -> bool:
        """Returns whether there is anything to look for."""
        return bool(self.needles)

    def feed(self, text: str) -> str:
        """Adds a piece; returns what can be shown, and holds back what may become a secret."""
        if not self.needles:
            return text
        text = self._held + text
        found = _find_values(text, self.needles)
        keep = _may_become(text, self.needles)
        shown = _mask_found(text, found, self._covered, keep)
        self._held = text[keep:]
        ends = (end for start, end in found if start < keep)
        self._covered = max(self._covered - keep, max(ends, default=0) - keep, 0)
        return shown

    def flush(self) -> str:
        """Returns what was held back, masked: the stream is over."""
        rest, covered = self._held, self._covered
        self._held, self._covered = "", 0
        return _mask_found(rest, _find_values(rest, self.needles), covered, len(rest))


def _mask_found(text: str, found: list[tuple[int, int]], covered: int, until: int) -> str:
    """Returns a text masked up to `until`; the first `covered` characters were masked before."""
    shown = []
    position = covered
    for start, end in found:
        if start >= until:
            break
        if start >= position:
            shown += [text[position:start], MASK]
        position = max(position, end)
    shown.append(text[position:until])
    return "".join(shown)


def _find_values(text: str, needles: tuple[str, ...]) -> list[tuple[int, int]]:
    """Returns begin and end of all values in a text, in order; they may overlap."""
    places = []
    for needle in needles:
        if needle not in text:
            continue
        start = text.find(needle)
        while start >= 0:
            end = _end_of_chain(text, needle, start)
            places.append((start, end))
            start = text.find(needle, end)
    places.sort()
    return places


def _end_of_chain(text: str, needle: str, start: int) -> int:
    """Returns where a value ends that begins at `start`; overlapping repetitions count as one."""
    size = len(needle)
    last = start
    while (further := text.rfind(needle, last + 1, last + 2 * size - 1)) >= 0:
        last = further
    return last + size


def _may_become(text: str, needles: tuple[str, ...]) -> int:
    """Returns where the end of a text begins that may be the beginning of a value."""
    earliest = len(text)
    for needle in needles:
        if text[-1:] not in needle:
            continue  # as it is for nearly every line, and at no cost
        start = text.find(needle[0], max(len(text) - len(needle) + 1, 0), earliest)
        while start >= 0:
            if needle.startswith(text[start:]):
                earliest = start
                break
            start = text.find(needle[0], start + 1, earliest)
    return earliest


def _needles(values: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Returns the texts to look for, whole values first, and whether none had to be left out."""
    wholes: dict[str, None] = {}
    for value in dict.fromkeys(values):
        wholes.update(dict.fromkeys(_trim(value)))
    lines = (text for whole in wholes for line in whole.splitlines() for text in _trim(line))
    texts = dict.fromkeys(itertools.islice(itertools.chain(wholes, lines), MOST + 1))
    needles: dict[str, None] = {}
    for text in texts:
        needles.update(dict.fromkeys(_pieces(text)))
    left = _ENCODED
    is_complete = len(texts) <= MOST
    for text in texts:
        if len(text) > left or len(needles) > MOST:
            is_complete = False
            continue
        left -= len(text)
        for form in _forms(text):
            needles.update(dict.fromkeys(_pieces(form)))
        needles.update(dict.fromkeys(_as_base64(text)))
        needles.update(dict.fromkeys(_as_hex(text, spaced=text in wholes)))
    return tuple(itertools.islice(needles, MOST)), is_complete and len(needles) <= MOST


def _trim(text: str) -> Iterator[str]:
    """A text with and without the space around it, if it is long enough to be looked for."""
    for each in (text, text.strip()):
        if len(each) >= _SHORTEST and each.strip("*"):
            yield each


def _forms(text: str) -> Iterator[str]:
    """How programs write a value; most are the same for a value of letters and digits."""
    yield text
    yield from _line_break_forms(text)
    yield from _json_forms(text)
    yield from _url_forms(text)
    yield from _shell_forms(text)


def _line_break_forms(text: str) -> Iterator[str]:
    """A terminal, a file of another system, or a log that ends lines at each return."""
    lines = text.splitlines()
    if len(lines) > 1:
        for line_break in ("\n", "\r\n", "\r", ""):
            joined = line_break.join(lines)
            if len(joined) >= _SHORTEST:
                yield joined


def _url_forms(text: str) -> Iterator[str]:
    """Percent-encoded: with and without slashes and what URLs leave alone, in both cases."""
    data = text.encode(errors="surrogateescape")
    for safe in ("", "/", _URI_COMPONENT, _URI):
        form = quote(data, safe=safe)
        if form != text:
            yield form
            yield _LOWER_PERCENT.sub(lambda found: found.group().lower(), form)
            if "%20" in form:
                yield form.replace("%20", "+")


def _shell_forms(text: str) -> Iterator[str]:
    """As `set -x`, `printf %q` and `env` print it."""
    for form in (
        text.replace("'", "'\\''"),
        text.replace("'", "'\"'\"'"),
        _SHELL_SPECIAL.sub(r"\\\g<0>", text),
        text.replace("\\", "\\\\").replace('"', '\\"'),
    ):
        if form != text:
            yield form


def _as_hex(text: str, *, spaced: bool) -> Iterator[str]:
    """A hexadecimal dump, whole, and in the lines that programs break it into."""
    plain = text.encode(errors="surrogateescape").hex()
    forms = [plain, *(plain[at : at + 60] for at in range(0, len(plain), 60))]
    if spaced:
        pairs = [plain[at : at + 2] for at in range(0, len(plain), 2)]
        forms += [" ".join(pairs), ":".join(pairs)]
        yield from _pieces("".join(f"\\x{pair}" for pair in pairs))
    for form in (*forms, *(form.upper() for form in forms)):
        if len(form) >= 2 * _SHORTEST:
            yield from _pieces(form)


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces of a length that can be held back; the last one is as long as the others."""
    for start in range(0, max(len(text) - LONGEST, 0), LONGEST):
        yield text[start : start + LONGEST]
    yield text[-LONGEST:]


def _json_forms(text: str) -> Iterator[str]:
    """How a value looks inside of JSON, where that is not how it looks anyway."""
    for plain in (json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]):
        for form in (plain, plain.translate(_IN_GO)):
            if form != text:
                yield form


def _as_base64(text: str) -> Iterator[str]:
    """What base64 makes of a value, at the beginning of something or after one or two bytes."""
    data = text.encode(errors="surrogateescape")
    forms = [base64.b64encode(data).decode()]
    for offset in range(3):
        # Of these the bytes around the value change nothing.
        inner = data[-offset % 3 :]
        forms.append(base64.b64encode(inner[: len(inner) // 3 * 3]).decode())
    forms.append(forms[0].rstrip("="))
    for width in _LINES:
        forms += [forms[0][start : start + width] for start in range(0, len(forms[0]), width)]
    for form in (*forms, *(form.translate(_URL) for form in forms)):
        if len(form) >= _SHORTEST_BASE64:
            yield from _pieces(form)


_URI_COMPONENT: Final = "!'()*"
"""What JavaScript's encodeURIComponent leaves alone beyond the rule of URLs."""
_URI: Final = "!#$&'()*+,/:;=?@"
_LOWER_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_SHELL_SPECIAL: Final = re.compile(r"[^\w@%+=:,./-]", re.ASCII)
_IN_GO: Final = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&"})
_URL: Final = str.maketrans("+/", "-_")
