# SPDX-License-Identifier: Apache-2.0
"""Checks what a piped's configuration names, with the code that piped itself uses.

Nothing is changed: files are read, git lists branches, and the control plane is asked one question.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipecd_model.config import PipedConfig
from pipecd_model.config.piped import PluginConfig, RepositoryConfig
from pipecd_model.errors import PipecdError
from pipecd_model.gitnames import BranchName, RemoteAddress
from pipecd_piped.git.access import Credentials
from pipecd_piped.git.process import environment
from pipecd_piped.git.process import run as run_git
from pipecd_piped.programs.download import redact_url
from pipecd_piped.programs.fetch import fetch
from pipecd_piped.programs.source import ProgramSource
from pipecd_piped.secrets import read_keys
from pipecd_runtime.checkup import CheckRow, fail, has_failed, ok, warn
from pipecd_runtime.process import own, word
from pipecd_runtime.reach import check_reach
from pipecd_wire.headers import AUTHORIZATION, format_piped_token
from pipecd_wire.pipedservice.service_pb2 import GetDesiredVersionRequest
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import CallError, ClientTls, call, connect, explain_unreachable

GIT_SECONDS: Final = 30.0
"""Seconds that a remote has to list its branches."""

LEAST_GIT: Final = (2, 36)
_READABLE_BY_OTHERS: Final = 0o077


async def check_configuration(
    config: PipedConfig, *, find_key: Callable[[], str], tls: ClientTls | None
) -> list[CheckRow]:
    """Returns a row for each thing that the configuration names. `find_key` reads piped's key."""
    rows = [ok("piped file", f"piped {config.piped_id} of the project {config.project_id}")]
    rows += await _check_control_plane(config, find_key, tls)
    rows += await _check_git(config)
    with tempfile.TemporaryDirectory(prefix="piped-check-") as folder:
        rows += [await _check_plugin(plugin, Path(folder)) for plugin in config.plugins]
    if not config.plugins:
        rows.append(
            fail("plugins", "there is none, so no stage can run", "add plugins to the file")
        )
    rows += _check_secrets(config)
    return rows


async def _check_control_plane(
    config: PipedConfig, find_key: Callable[[], str], tls: ClientTls | None
) -> list[CheckRow]:
    try:
        key = find_key()
    except PipecdError as error:
        row = fail(
            "piped key", error.with_hint(), "put the key there that `piped register` printed"
        )
        return [row]
    roots = None if tls is None else tls.roots
    rows = [_check_mode("piped key", config.piped_key_file)]
    rows += await check_reach(config.api_address, tls=tls is not None, roots=roots)
    if has_failed(rows):
        return rows
    credentials = [(AUTHORIZATION, format_piped_token(config.project_id, config.piped_id, key))]
    async with connect(config.api_address, tls=tls, metadata=lambda: credentials) as channel:
        try:
            await call(PipedServiceStub(channel).GetDesiredVersion, GetDesiredVersionRequest())
        except CallError as error:
            return [*rows, _explain_refusal(error, tls=tls is not None)]
    return [*rows, ok("control plane", "knows this piped and its key")]


def _explain_refusal(error: CallError, *, tls: bool) -> CheckRow:
    if trouble := explain_unreachable(error, tls=tls):
        step = trouble.hint or "look at the server's log"
        return fail("control plane", f"cannot be called: {trouble.cause}", step)
    step = "compare with `pipectl piped list`: the id, and whether it is enabled"
    return fail("control plane", f"refuses this piped: {error.message}", step)


async def _check_git(config: PipedConfig) -> list[CheckRow]:
    try:
        told = (await run_git(*own("--version"), env=environment())).decode(errors="replace")
    except PipecdError as error:
        return [fail("git", str(error), "install git 2.36 or newer")]
    found = re.search(r"(\d+)\.(\d+)", told)
    version = told.strip().removeprefix("git ")
    if found is None or (int(found[1]), int(found[2])) < LEAST_GIT:
        return [fail("git", f"{version} is too old", "install git 2.36 or newer")]
    rows = [ok("git", version)]
    with tempfile.TemporaryDirectory(prefix="piped-check-") as folder:
        credentials = Credentials(config.git, Path(folder))
        try:
            credentials.prepare()
        except PipecdError as error:
            return [*rows, fail("ssh key", str(error), error.hint)]
        rows += await asyncio.gather(
            *(_check_repository(each, credentials) for each in config.repositories)
        )
    if not config.repositories:
        text = "there is none, so no application is found"
        rows.append(warn("repositories", text, "add repositories to the file"))
    return rows


async def _check_repository(repository: RepositoryConfig, credentials: Credentials) -> CheckRow:
    subject = f"repository {repository.repo_id}"
    branch = BranchName(repository.branch)
    remote = RemoteAddress(repository.remote)
    access = credentials.for_remote(remote)
    env = environment(access.settings, access.variables, helper=remote.helper)
    listing = own("ls-remote", "--heads", "--")
    try:
        output = await run_git(
            *listing, word(access.address), word(branch.ref), env=env, limit=GIT_SECONDS
        )
    except PipecdError as error:
        step = "check remote, git.sshKeyFile or git.password, and what this machine may reach"
        return fail(subject, error.with_hint(), step)
    if not output.strip():
        text = f"{access.address} has no branch {repository.branch!r}"
        return fail(subject, text, "correct branch in the file, or push the branch")
    return ok(subject, f"branch {branch} at {output.split()[0][:7].decode(errors='replace')}")


async def _check_plugin(plugin: PluginConfig, folder: Path) -> CheckRow:
    subject = f"plugin {plugin.name}"
    if plugin.url.partition("://")[0] in {"http", "https", "oci"}:
        return ok(subject, f"is fetched from {redact_url(plugin.url)} when piped starts")
    source = ProgramSource(name=plugin.name, url=plugin.url, sha256=plugin.sha256)
    try:
        found = await fetch(source, folder)
    except PipecdError as error:
        return fail(subject, str(error), error.hint or "check its url in the file")
    return ok(subject, f"is installed as {found.path}" if found.is_package else "is a file here")


def _check_secrets(config: PipedConfig) -> list[CheckRow]:
    if config.secret_management is None:
        return []
    try:
        read_keys(config.secret_management)
    except PipecdError as error:
        return [fail("secrets", str(error), error.hint or "make a pair with pipectl keygen")]
    return [ok("secrets", "their keys can be used")]


def _check_mode(subject: str, file: str) -> CheckRow:
    if not file:
        return ok(subject, "stands in the file")
    mode = os.stat(file).st_mode  # noqa: PTH116 - the path is a text
    if mode & _READABLE_BY_OTHERS:
        return warn(subject, f"{file} can be read by other users", f"chmod 600 {file}")
    return ok(subject, f"is in {file}")
