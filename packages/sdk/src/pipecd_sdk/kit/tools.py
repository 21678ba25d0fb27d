# SPDX-License-Identifier: Apache-2.0
"""The registry of tools: programs that several plugins need, and how to get them.

Downloads are checked by their SHA-256 before they are unpacked, the program again before each use.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_sdk.tools import Tool, ToolError

__all__ = ["DEFAULTS", "define_tool", "find_on_path", "find_tool"]

DEFAULTS: Final[Mapping[str, str]] = {
    "kubectl": "1.18.2",
    "kustomize": "3.8.1",
    "helm": "3.8.2",
    "terraform": "0.13.0",
}
"""The default version of each known tool: old, so that existing files still work."""

_RELEASES: Final = "https://github.com/kubernetes-sigs/kustomize/releases/download"
_HASHICORP: Final = "https://releases.hashicorp.com/terraform/{version}/terraform_{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolSource:
    """Where a tool is, the program in the archive, and where its publisher has its checksum."""

    url: str
    sums: str
    member: str = ""


_KNOWN: Final[Mapping[str, _ToolSource]] = {
    "kubectl": _ToolSource(
        url="https://dl.k8s.io/release/v{version}/bin/{os}/{arch}/kubectl",
        sums="https://dl.k8s.io/release/v{version}/bin/{os}/{arch}/kubectl.sha256",
    ),
    "kustomize": _ToolSource(
        url=f"{_RELEASES}/kustomize%2Fv{{version}}/kustomize_v{{version}}_{{os}}_{{arch}}.tar.gz",
        sums=f"{_RELEASES}/kustomize%2Fv{{version}}/checksums.txt",
        member="kustomize",
    ),
    "helm": _ToolSource(
        url="https://get.helm.sh/helm-v{version}-{os}-{arch}.tar.gz",
        sums="https://get.helm.sh/helm-v{version}-{os}-{arch}.tar.gz.sha256sum",
        member="{os}-{arch}/helm",
    ),
    "terraform": _ToolSource(
        url=f"{_HASHICORP}_{{os}}_{{arch}}.zip",
        sums=f"{_HASHICORP}_SHA256SUMS",
        member="terraform",
    ),
}

_SUM: Final = re.compile(r"[0-9A-Fa-f]+")
_PLATFORM: Final = re.compile(r"[a-z0-9]+/[a-z0-9_]+")
_ACTIVE_IN_QUOTES: Final = re.compile(r"[\"$`\\\x00-\x1f]")
"""What a shell reads as more than itself between double quotes."""


def find_tool(name: str, version: str = "", *, sha256: Mapping[str, str] | None = None) -> Tool:
    """Returns a tool of the registry: kubectl, kustomize, helm, terraform.

    `sha256` is that of the download, by platform; without it the one that the publisher has beside
    it is taken, which finds a broken download and not a broken publisher. Raises ToolError for any
    other name.

    Example:
        >>> find_tool("helm").version
        '3.8.2'
        >>> kubectl = find_tool("kubectl", "1.33.0", sha256={"linux/amd64": "9efe8d3facb2"})
        >>> kubectl.name, "9efe8d3facb2" in kubectl.script
        ('kubectl', True)
    """
    if name not in _KNOWN:
        raise ToolError(f"there is no known tool {name!r}", hint=f"known: {', '.join(_KNOWN)}")
    known = _KNOWN[name]
    return define_tool(
        name,
        version or DEFAULTS[name],
        known.url,
        member=known.member,
        sha256=sha256,
        sums="" if sha256 else known.sums,
    )


def define_tool(
    name: str,
    version: str,
    url: str,
    *,
    member: str = "",
    sha256: Mapping[str, str] | None = None,
    sums: str = "",
) -> Tool:
    """Returns a tool that is downloaded, and unpacked if its URL ends in `.tar.gz` or `.zip`.

    `{version}`, `{os}` and `{arch}` in `url` and `member`, the path of the program in the archive,
    are filled in. A download whose SHA-256 is not that of this platform is never unpacked; nor one
    whose SHA-256 is not the one in the publisher's list at the address `sums`, where that is given.
    Raises ToolError for a URL, path or checksum that cannot be one.

    Example:
        >>> tool = define_tool("hello", "1.0", "https://example.com/hello-{version}-{os}-{arch}",
        ...                 sha256={"linux/amd64": "ab12"})
        >>> tool.sha256
        {'linux/amd64': 'ab12'}
    """
    _check_words((url, member, sums), sha256 or {})
    script = [
        "set -e",
        'cd "{{ .TmpDir }}"',
        f'curl -fsSL --retry 3 -o download "{_fill(url)}"',
        *(_check(sha256) if sha256 else ()),
        *(_check_published(_fill(sums), _fill(url)) if sums else ()),
        *_unpack(url, _fill(member)),
    ]
    is_plain = not url.endswith((".tar.gz", ".zip"))
    return Tool(
        name=name,
        version=version,
        script="\n".join(script) + "\n",
        # Of an archive only the sum of the whole is known; of a plain file it is the program's own.
        sha256=dict(sha256) if sha256 and is_plain else {},
    )


def find_on_path(name: str) -> Path | None:
    """Returns the path of a program that is on PATH, None when there is none.

    Example:
        >>> find_on_path("sh").name
        'sh'
        >>> find_on_path("no-such-program") is None
        True
    """
    import shutil  # noqa: PLC0415 - a plugin that waits needs none of it

    found = shutil.which(name)
    return Path(found) if found else None


def _check_words(texts: Sequence[str], sha256: Mapping[str, str]) -> None:
    """Raises ToolError for a value that would be more than a word in the text of a script."""
    for text in texts:
        if _ACTIVE_IN_QUOTES.search(text) or text.startswith("-"):
            raise ToolError(f"not the address or path of a tool: {text!r}")
    for platform, value in sha256.items():
        if not (_PLATFORM.fullmatch(platform) and _SUM.fullmatch(value)):
            raise ToolError(
                f"not a checksum: {platform!r}: {value!r}", hint="e.g. linux/amd64: 9efe8d…"
            )


def _fill(text: str) -> str:
    return (
        text.replace("{version}", "{{ .Version }}")
        .replace("{os}", "{{ .Os }}")
        .replace("{arch}", "{{ .Arch }}")
    )


def _check(sha256: Mapping[str, str]) -> list[str]:
    cases = [f"  {platform}) sum={value.lower()} ;;" for platform, value in sha256.items()]
    return [
        'case "{{ .Os }}/{{ .Arch }}" in',
        *cases,
        '  *) echo "no checksum for {{ .Os }}/{{ .Arch }}" >&2; exit 1 ;;',
        "esac",
        'echo "$sum  download" | sha256sum -c - >&2',
    ]


def _check_published(sums: str, url: str) -> list[str]:
    """Returns the lines that look a download up in a list of `<sum>  <file>`, or in a bare sum."""
    file = url.rpartition("/")[2]
    look_up = 'NF == 1 || $2 == file || $2 == "*" file { print $1; exit }'
    return [
        f'curl -fsSL --retry 3 -o sums "{sums}"',
        f'file="{file}"',
        f"sum=$(awk -v file=\"$file\" '{look_up}' sums)",
        '[ -n "$sum" ] || { echo "its publisher has no checksum for $file" >&2; exit 1; }',
        'echo "$sum  download" | sha256sum -c - >&2',
    ]


def _unpack(url: str, member: str) -> list[str]:
    if url.endswith(".tar.gz"):
        return [f'tar -xzf download "{member}"', f'mv "{member}" "{{{{ .OutPath }}}}"']
    if url.endswith(".zip"):
        return [f'unzip -q download "{member}"', f'mv "{member}" "{{{{ .OutPath }}}}"']
    return ['mv download "{{ .OutPath }}"']
