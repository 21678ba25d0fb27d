# SPDX-License-Identifier: Apache-2.0
"""One commit of another git repository, for a chart that is there."""

import asyncio
import os
import re
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.rendering.programs import (
    RenderError,
    explain_missing,
    make_environment,
    run_program,
)
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit import tools
from pipecd_sdk.kit.process import own, word

_REF: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]*")
_SSH: Final = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO")
"""Variables by which the operator says how other repositories are reached."""


async def fetch_commit(remote: str, ref: str, *, into: Path) -> Path:
    """Returns the folder with the files of a branch, tag or commit. Raises StageFailedError.

    The remote's host has been checked. ssh uses the keys of the user that the plugin runs as.
    """
    git = tools.find_on_path("git")
    if git is None:
        raise explain_missing("git")
    wanted = ref or "HEAD"
    if not _REF.fullmatch(wanted) or ".." in wanted:
        raise StageFailedError(f"helmChart.ref cannot be {ref[:100]!r}")
    await asyncio.to_thread(into.mkdir, parents=True)
    home = into.parent
    known = {name: value for name in _SSH if (value := os.environ.get(name))}
    known.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    env = make_environment(home, **known) | {"GIT_ALLOW_PROTOCOL": "https:http:ssh"}
    if ours := os.environ.get("HOME"):
        env["HOME"] = ours  # for the keys and known hosts of ssh
    what = f"fetching the chart from {remote[:200]!r}"
    start = (
        word(git),
        *own("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
        *own("-c", "submodule.recurse=false"),
    )
    await run_program((*start, *own("init", "-q")), what, cwd=into, env=env)
    fetch = (*start, *own("fetch", "-q", "--no-tags", "--no-recurse-submodules"))
    try:
        arguments = (*fetch, *own("--depth=1", "--"), word(remote), word(wanted))
        await run_program(arguments, what, cwd=into, env=env)
        found = "FETCH_HEAD"
    except RenderError:
        # Servers give a short commit, or any commit, only with everything else.
        every = own("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        await run_program((*fetch, *own("--"), word(remote), *every), what, cwd=into, env=env)
        found = wanted
    arguments = (*start, *own("checkout", "-q", "--detach"), word(found), *own("--"))
    await run_program(arguments, what, cwd=into, env=env)
    return into
