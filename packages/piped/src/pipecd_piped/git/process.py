# SPDX-License-Identifier: Apache-2.0
"""Run git: a clean environment, a time limit, and no process left behind.

Everything of piped that starts git goes through here. Git never prompts: without credentials
that work it fails, and the failure is reported.
"""

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipecd_piped.git.errors import GitError, summarize_stderr
from pipecd_runtime import process as door
from pipecd_runtime.git_remote import make_settings_environment
from pipecd_runtime.logs import logger
from pipecd_runtime.process import Argument, BadArgumentError, Process, own

log = logger(__name__)

TERM_GRACE_SECONDS: Final = 2.0
"""Seconds between SIGTERM (git then removes its lock files) and SIGKILL."""

PROGRESS_SECONDS: Final = 2.0
"""Seconds between two progress reports of a transfer."""

MOST_OUTPUT: Final = 128 * 1024 * 1024
"""Bytes. The lists of files of the largest repositories fit; a few kilobytes of trees that name
each other stand for billions of files."""

MOST_MEMORY: Final = 2 * 1024 * 1024 * 1024
"""Bytes that a git may allocate to look at a commit, for the same reason."""

_ERRORS_KEPT: Final = 16 * 1024
_CHUNK: Final = 64 * 1024

_FROM_THE_OPERATOR: Final = (
    # How it is found, who runs it, and where it may write.
    *(
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "TZ",
        "LANG",
        "XDG_CONFIG_HOME",
        "LD_LIBRARY_PATH",
    ),
    # The way to a remote.
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "CURL_HOME", "OPENSSL_CONF"),
    # Who we are there: an agent for keys, Kerberos, what credential helpers and filters read.
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "KRB5CCNAME", "KRB5_CONFIG", "KRB5_CLIENT_KTNAME"),
    *("NETRC", "GNUPGHOME", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"),
    *("AWS_", "AZURE_", "CLOUDSDK_", "GCM_", "GH_", "GITHUB_", "GITLAB_", "GOOGLE_"),
    # A user that has no line in the list of users, as in a container.
    *("LD_PRELOAD", "NSS_WRAPPER_"),
)
"""The variables that git inherits from piped's own environment. Nothing that begins with `GIT_`,
which may belong to a hook that runs piped, and no prompt, such as SSH_ASKPASS."""

SETTINGS: Final = {
    "gc.auto": "0",  # trees borrow the mirror's objects: nothing may be collected behind them
    "maintenance.auto": "false",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "credential.interactive": "false",
    "core.useReplaceRefs": "false",
    "init.defaultRefFormat": "files",  # which `cleaning` knows
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "http.lowSpeedLimit": "1000",  # bytes a second; a transfer that stalls is given up
    "http.lowSpeedTime": "60",
}


_PROTOCOLS: Final = ("file", "git", "http", "https", "ssh")
"""The protocols that an address may use: others, such as `ext`, run commands from the address."""


def environment(
    settings: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
    *,
    helper: str = "",
) -> dict[str, str]:
    """Returns the environment of a git process, with its settings.

    Settings are passed here because every user of the machine can see the arguments of a process.

    `helper` is the remote helper that a configured address asks for, as in `codecommit::…`.
    """
    env = door.choose_environment(_FROM_THE_OPERATOR)
    env |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        # A hash means its own content: nothing in a repository may stand in for something else.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_ALLOW_PROTOCOL": ":".join((*_PROTOCOLS, helper) if helper else _PROTOCOLS),
        "SSH_ASKPASS_REQUIRE": "never",
    }
    env |= make_settings_environment({**SETTINGS, **(settings or {})})
    return env | dict(extra or {})


class GitFailedError(GitError):
    """Git exited with a failure; the caller turns it into a more specific error."""

    def __init__(self, action: str, code: int, stderr: str) -> None:
        super().__init__(f"git {action} failed: {summarize_stderr(stderr) or f'exit code {code}'}")
        self.stderr = stderr


async def run(
    *arguments: Argument,
    env: Mapping[str, str],
    options: Sequence[Argument] = (),
    limit: float = 60,
    on_progress: Callable[[str], None] | None = None,
    memory: int | None = MOST_MEMORY,
    most_output: int = MOST_OUTPUT,
) -> bytes:
    """Runs `git [options] [arguments]` and returns its output; `limit` is in seconds.

    Raises GitFailedError when git fails, GitError when it takes longer, or writes more than
    `most_output` bytes.
    """
    action = arguments[0].text
    # Not a pipe: an ssh process that is kept for later connections would hold it open for ever.
    with os.fdopen(os.memfd_create("git-stderr"), "w+b", buffering=0) as errors:
        process = await start(*options, *arguments, env=env, stderr=errors.fileno(), memory=memory)
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as beside:
                progress = None
                if on_progress is not None:
                    progress = beside.create_task(_tell_progress(errors.fileno(), on_progress))
                output = await read_output(process, most=most_output)
                if progress is not None:
                    progress.cancel()
        except TimeoutError:
            raise GitError(f"git {action} took longer than {limit:g}s") from None
        finally:
            await end(process)
        if output is None:
            raise too_much(action, most_output)
        if process.returncode:
            raise GitFailedError(action, process.returncode, _tail(errors.fileno()))
        return output


async def start(
    *arguments: Argument,
    env: Mapping[str, str],
    stdin: int = door.DEVNULL,
    stderr: int = door.DEVNULL,
    memory: int | None = MOST_MEMORY,
) -> Process:
    """Start git in a process group of its own; its output is a pipe.

    `memory`: the bytes that it may allocate, None for any number.
    """
    command = (*own("git"), *arguments)
    try:
        process = await door.start(command, env=env, stdin=stdin, stdout=door.PIPE, stderr=stderr)
    except BadArgumentError as error:
        raise GitError(f"git cannot be started: {error}") from None
    except FileNotFoundError:
        raise GitError("there is no git", hint="install git 2.36 or newer") from None
    if memory is not None:
        _limit_memory(process.pid, memory)
    return process


def _limit_memory(pid: int, most: int) -> None:
    """Limit the memory that a process may allocate; a lower limit of the operator stays."""
    with contextlib.suppress(OSError, ValueError):  # it has ended, or the system does not say
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or hard > most:
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


async def read_output(process: Process, *, most: int = MOST_OUTPUT) -> bytes | None:
    """Returns all output of git after its exit; None when it is more than `most` bytes."""
    parts: list[bytes] = []
    size = 0
    while process.stdout is not None and (part := await process.stdout.read(_CHUNK)):
        parts.append(part)
        size += len(part)
        if size > most:
            return None
    await process.wait()
    return b"".join(parts)


def too_much(action: str, most: int = MOST_OUTPUT) -> GitError:
    """Returns the error for a git command that writes more output than is allowed."""
    return GitError(
        f"git {action} has more than {most / 2**20:g} MiB to say",
        hint="the commit has more files than piped can work with",
    )


async def end(process: Process) -> None:
    """Terminate git and all processes of its group, by SIGTERM and then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            _signal(process, number)
        try:
            async with asyncio.timeout(TERM_GRACE_SECONDS):
                await _wait_ended(process)
        except TimeoutError:
            continue
        return
    log.error("git.process_left", pid=process.pid)


async def _wait_ended(process: Process) -> None:
    """Wait until the process has exited; asyncio notices only once all output is read."""
    if process.stdin is not None:
        process.stdin.close()
    while process.stdout is not None and await process.stdout.read(_CHUNK):
        continue
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    # The process may have exited meanwhile; only the kernel knows.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def _tell_progress(descriptor: int, on_progress: Callable[[str], None]) -> None:
    told_last = ""
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        lines = _tail(descriptor).split("\n")
        line = next((each.strip() for each in reversed(lines) if each.strip()), "")
        if line != told_last:
            on_progress(line)
            told_last = line


def _tail(descriptor: int) -> str:
    """Returns the end of git's stderr: the reason of a failure comes last, after progress."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _ERRORS_KEPT, max(0, size - _ERRORS_KEPT))
    return data.decode(errors="replace").replace("\r", "\n")
