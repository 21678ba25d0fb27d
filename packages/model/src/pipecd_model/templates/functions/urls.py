# SPDX-License-Identifier: Apache-2.0
"""Functions for addresses: `urlParse` takes one apart, `urlJoin` puts one together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.kinds import to_bytes, to_text
from pipecd_model.templates.limits import TooMuchError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HOST_BAD: Final = re.compile(r"[ \\^`{|}\x00-\x1f]|%(?![89a-fA-F][0-9a-fA-F])")

_PATH_SAFE: Final = "$&+,/:;=@"
_USER_SAFE: Final = "$&+,;="
_HOST_SAFE: Final = "!$&'()*+,;=:[]<>\""
_FRAGMENT_SAFE: Final = "$&+,/:;=?@!()*"


def _fail() -> FunctionError:
    return FunctionError("this is no address")


def _unescape(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise _fail()
    return to_text(unquote_to_bytes(to_bytes(text))) if "%" in text else text


def _escape(text: str, safe: str) -> str:
    return quote(to_bytes(text), safe=safe)


def _parse(text: str) -> dict[str, object]:
    if any(ord(char) < 0x20 or char == "\x7f" for char in text):
        raise _fail()
    text, _, fragment = text.partition("#")
    parts: dict[str, object] = dict.fromkeys(
        ("scheme", "host", "hostname", "path", "query", "opaque", "fragment", "userinfo"), ""
    )
    parts["fragment"] = _unescape(fragment)
    if text == "*":
        return parts | {"path": "*"}
    if text.startswith(":"):
        raise _fail()
    if found := _SCHEME.fullmatch(text):
        parts["scheme"], text = found[1].lower(), found[2]
    text, _, query = text.partition("?")
    parts["query"] = query
    if not text.startswith("/"):
        if parts["scheme"]:
            return parts | {"opaque": text}
        if ":" in text.partition("/")[0]:
            raise _fail()
    if text.startswith("//") and (parts["scheme"] or not text.startswith("///")):
        authority, slash, rest = text[2:].partition("/")
        text = slash + rest
        userinfo, host = _authority(authority)
        parts |= {"userinfo": userinfo, "host": host, "hostname": _hostname(host)}
    parts["path"] = _unescape(text)
    return parts


def _authority(text: str) -> tuple[str, str]:
    user, found, host = text.rpartition("@")
    if not found:
        return "", _host(host)
    if not _USER.fullmatch(user):
        raise _fail()
    name, colon, password = user.partition(":")
    written = _escape(_unescape(name), _USER_SAFE)
    if colon:
        written += ":" + _escape(_unescape(password), _USER_SAFE)
    return written, _host(host)


def _host(text: str) -> str:
    if text.startswith("["):
        closed = text.rfind("]")
        if closed < 0 or not _PORT.fullmatch(text[closed + 1 :]):
            raise _fail()
    elif (colon := text.rfind(":")) >= 0 and not _PORT.fullmatch(text[colon:]):
        raise _fail()
    zone = text.find("%25") if text.startswith("[") else -1
    if _HOST_BAD.search(text[:zone] if zone >= 0 else text):
        raise _fail()
    return _unescape(text)


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1 : host.find("]")] if "]" in host else host
    return host.partition(":")[0] if _PORT.search(host) else host


def _join(parts: dict[str, object]) -> str:
    get = {
        name: _text(parts, name)
        for name in ("scheme", "host", "path", "query", "opaque", "fragment", "userinfo")
    }
    made = f"{get['scheme']}:" if get["scheme"] else ""
    if get["opaque"]:
        made += get["opaque"]
    else:
        path = get["path"] if get["path"] == "*" else _escape(get["path"], _PATH_SAFE)
        user = _parse(f"proto://{get['userinfo']}@host")["userinfo"] if get["userinfo"] else ""
        if get["scheme"] or get["host"] or user:
            if get["host"] or get["path"] or user:
                made += "//"
            made += f"{user}@" if user else ""
            made += _escape(get["host"], _HOST_SAFE)
        if path and not path.startswith("/") and get["host"]:
            made += "/"
        if not made and ":" in path.partition("/")[0]:
            made += "./"
        made += path
    if get["query"]:
        made += f"?{get['query']}"
    if get["fragment"]:
        made += "#" + _escape(get["fragment"], _FRAGMENT_SAFE)
    return made


def _text(parts: dict[str, object], name: str) -> str:
    value = parts.get(name, "")
    if not isinstance(value, str):
        raise FunctionError(f"the entry {name} is no text")
    return value


def _grow_parse(text: str) -> int:
    if len(text) > _LONGEST:
        raise TooMuchError(f"an address may have {_LONGEST:,} characters")
    return 0


def _grow_join(parts: dict[str, object]) -> int:
    return max((_grow_parse(each) for each in parts.values() if isinstance(each, str)), default=0)


_LONGEST: Final = 1 << 16

URLS: Final[Mapping[str, Function]] = {
    "urlParse": declare("s", _parse, cost=_grow_parse),
    "urlJoin": declare("m", _join, cost=_grow_join),
}
