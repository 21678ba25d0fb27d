# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH104, PTH108, T201
"""Runs one script, from its start record to its exit record, and keeps its output.

It reads from its standard input what to run, makes everything ready, and starts it when the plugin
releases it there. Its standard output is a pipe to the plugin that follows: first comes the shim's
pid, then a point whenever something has changed, at last its exit code. SIGTERM asks it to end the
script and all its descendants, SIGUSR1 to shorten the grace period. A script may be interrupted
first instead, with SIGINT as a person at a terminal does it: then its grace period is its own, and
nothing shortens it.
"""

# Not `signal`, which turns its numbers into enums first: a quarter of the shim's whole start.
import _signal as signal  # type: ignore[import-not-found]
import ctypes
import os
import select
import sys
import time

from pipecd_runtime.shim import chaos, frames, record
from pipecd_runtime.shim.processes import INT, KILL, SCRIPT_ID, TERM, ScriptProcesses

TYPE_CHECKING = False  # not from `typing`, for the same reason
if TYPE_CHECKING:
    from collections.abc import Callable

SHELL = "/bin/sh"
LOGIN = "-l"
INTERRUPT = "interrupt"
"""A word of the job: end the script with SIGINT first."""
TAKEN = 3
"""Exit code: another shim has started the script, or it is forbidden."""
UNFINISHED = 4
"""Exit code: the plugin ended, or gave up, before it had sent the whole job and its release."""
NOT_STARTED = 5
"""Exit code: it cannot be started; `errors` says why."""

PART_AFTER_SECONDS = 0.2
"""Seconds after which a line without an end is shown all the same."""
FIRST_LOOK_SECONDS = 0.01
"""Seconds until it is looked at whether signalled processes are gone; doubled each time."""
LONGEST_LOOK_SECONDS = 0.2
SHORT_GRACE_SECONDS = 1.0
KILL_LIMIT_SECONDS = 5.0
OUTPUT_LIMIT_SECONDS = 1.0
"""Seconds to read what ended processes have written last."""
FULL_DISK_PAUSE_SECONDS = 0.5
LARGEST_OUTPUT = 1 << 30
"""Bytes of output that are kept: a script that writes for ever must not fill the disk."""

RELEASE = b"!"
"""What the plugin sends when the script may start: its start is marked at the control plane."""

PID_BYTES = 4
NEWS = b"."

PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Runs a script; returns the exit code of the shim, not of the script."""
    os.closerange(3, 1 << 16)  # what the plugin or the template has open is not ours to hold
    gather_orphans()
    tell(os.getpid().to_bytes(PID_BYTES, "big"))
    code = run_job()
    tell(bytes([code]))
    return code


def run_job() -> int:
    """Reads the job and runs its script; returns the exit code of the shim."""
    job = read_job()
    if job is None:
        return UNFINISHED
    folder, directory, floor, grace, manner, text, *variables = (os.fsdecode(each) for each in job)
    try:
        errors = os.open(f"{folder}/{record.ERRORS}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(errors, 2)
        os.chdir(directory)
        environment = dict(each.split("=", 1) for each in variables)
        runner = ScriptRunner(folder, environment, float(grace), manner.split())
        runner.prepare(os.fsencode(text))
        record.sync_parents(folder)
        if _read_exactly(1) != RELEASE:
            runner.forget()
            return UNFINISHED
        chaos.hit("shim.before-record")
        lock = record.take(folder, int(floor))
        if lock is None:
            runner.forget()
            return TAKEN
    except OSError as error:
        complain(error)
        return NOT_STARTED
    runner.run()
    return 0


def tell(news: bytes) -> None:
    """Writes to the plugin that follows, if there is one."""
    try:
        os.write(1, news)
    except OSError:
        return  # no plugin follows, or the pipe is full because it has not read


def complain(error: OSError) -> None:
    """Writes an error to the file where the plugin looks for it, if the disk has room."""
    try:
        print(error, file=sys.stderr, flush=True)
    except OSError:
        return


def write_whole(path: str, text: bytes) -> None:
    """Write a file. Raises OSError."""
    number = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        while text:
            text = text[os.write(number, text) :]
    finally:
        os.close(number)


def remove(path: str) -> None:
    """Removes a file; errors are ignored, because nothing depends on it."""
    try:
        os.unlink(path)
    except OSError:
        return


def read_job() -> list[bytes] | None:
    """Waits for the job from the plugin and returns it; None when it is incomplete.

    Half a script must never run, and no shim may wait for a plugin that is gone.
    """
    size = int.from_bytes(_read_exactly(8), "big")
    job = _read_exactly(size)
    return job[:-1].split(b"\0") if size and len(job) == size else None


def _read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(0, size - len(data))):
        data += more
    return data


def gather_orphans() -> None:
    """Becomes the child subreaper: the parent of every descendant that is orphaned."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class ScriptRunner:
    """Runs one script, as the parent of all its processes."""

    def __init__(
        self, folder: str, variables: dict[str, str], grace_seconds: float, manner: list[str]
    ) -> None:
        """`manner`: words of LOGIN and INTERRUPT."""
        self._folder = folder
        self._shell_options = [LOGIN] if LOGIN in manner else []
        self._first_signal = INT if INTERRUPT in manner else TERM
        self._variables = variables
        self._grace = grace_seconds
        self._asked = False
        self._hurry = False
        self._wake_end, wake = os.pipe()
        for end in (self._wake_end, wake, 1):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGUSR1, self._on_hurry)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._shell = 0
        self._code: int | None = None
        self._pipe = -1
        self._own_script = f"{folder}/{record.SCRIPT}.{os.getpid()}"
        self._output = -1
        self._written = 0
        self._lost = 0
        self._left_out = 0
        self._is_torn = False
        self._part_since: float | None = None

    def _on_term(self, *_: object) -> None:
        self._asked = True

    def _on_hurry(self, *_: object) -> None:
        self._hurry = True

    def prepare(self, text: bytes) -> None:
        """Writes all files that need disk space before the start record is made. Raises OSError."""
        write_whole(f"{self._folder}/{record.GRACE}", f"{self._grace}\n".encode())
        self._output = os.open(
            f"{self._folder}/{record.OUTPUT}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600
        )
        write_whole(self._own_script, text)

    def forget(self) -> None:
        """Removes this shim's copy of the script, which another shim runs or which is forbidden."""
        remove(self._own_script)

    def run(self) -> None:
        """Runs the script to its end and writes the exit record.

        Retries on a full disk until the exit record is written, or its folder is removed.
        """
        tell(NEWS)
        chaos.hit("shim.after-record")
        script = f"{self._folder}/{record.SCRIPT}"
        os.rename(self._own_script, script)
        if not self._asked:
            self._start(script)
            chaos.hit("shim.running")
            self._keep()
            self._tell_rest()
            os.chdir("/")  # piped sees by our folder whether it is still in use
            chaos.hit("shim.script-ended")
        remove(script)
        code = -TERM if self._code is None else self._code
        while True:
            try:
                record.put_exit(self._folder, code, asked=self._asked)
                break
            except FileNotFoundError:
                return  # the whole record was removed: no process will read it
            except OSError as error:  # a full disk: the plugin that follows waits, too
                complain(error)
                time.sleep(FULL_DISK_PAUSE_SECONDS)
        tell(NEWS)  # the script has ended: the plugin need not wait for the disk
        chaos.hit("shim.exit-record")
        record.sync_exit(self._folder)

    def _start(self, script: str) -> None:
        self._pipe, sink = os.pipe()
        os.set_blocking(self._pipe, False)
        self._shell = os.posix_spawn(
            SHELL,
            [SHELL, *self._shell_options, script],
            self._variables,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, sink, 1),
                (os.POSIX_SPAWN_DUP2, sink, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT],
        )
        os.close(sink)

    def _keep(self) -> None:
        """Copies the output until the script is over, as a shell waits for a pipeline."""
        poll = select.poll()
        poll.register(self._wake_end, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        ending: ScriptEnding | None = None
        while True:
            if (self._asked or self._code) and ending is None:
                ending = ScriptEnding(
                    self._variables.get(SCRIPT_ID, ""),
                    self._grace,
                    self._note,
                    first=self._first_signal,
                )
            hurry = self._hurry and self._first_signal == TERM
            if ending is not None and ending.look(hurry=hurry, quiet=self._pipe < 0):
                while self._pipe >= 0 and self._read():
                    pass
                self._reap()
                return
            if self._code == 0 and self._pipe < 0 and ending is None:
                return
            for number, _ in poll.poll(self._patience(ending)):
                if number == self._wake_end:
                    os.read(self._wake_end, 4096)
                    self._reap()
                elif not self._read():
                    poll.unregister(number)
                    os.close(number)
                    self._pipe = -1
            self._cut_part()

    def _patience(self, ending: "ScriptEnding | None") -> float | None:
        """Returns the milliseconds to poll for at most; None for no limit."""
        moments = [] if ending is None else [ending.next_look]
        if self._part_since is not None:
            moments.append(self._part_since + PART_AFTER_SECONDS)
        return max(min(moments) - time.monotonic(), 0) * 1000 + 1 if moments else None

    def _read(self) -> bool:
        """Copies a piece of the output; returns False at its end, or when there is none now."""
        try:
            data = os.read(self._pipe, frames.LONGEST)
        except BlockingIOError:
            return False
        if not data:
            return False
        self._append(frames.OUTPUT, data)
        self._part_since = None if data.endswith(b"\n") else time.monotonic()
        chaos.hit("shim.output")
        return True

    def _cut_part(self) -> None:
        if (
            self._part_since is not None
            and time.monotonic() >= self._part_since + PART_AFTER_SECONDS
        ):
            self._part_since = None
            self._append(frames.CUT)

    def _note(self, text: str) -> None:
        self._append(frames.NOTE, text.encode())

    def _append(self, kind: bytes, data: bytes = b"") -> None:
        """Appends a complete frame or none: the script continues when the disk is full."""
        if kind == frames.OUTPUT:
            room = 0 if self._left_out else max(LARGEST_OUTPUT - self._written, 0)
            self._left_out += max(len(data) - room, 0)
            data = data[:room]
            if not data:
                return
        if self._lost and kind != frames.NOTE:
            self._tell_loss()
        if not self._put(kind, data):
            self._lost += len(data)

    def _put(self, kind: bytes, data: bytes) -> bool:
        whole = frames.frame(kind, time.time_ns() // 1000, data)
        count = 0
        try:
            if not self._is_torn:
                count = os.write(self._output, whole)
        except OSError:
            count = 0
        if count == len(whole):
            self._written += count
            tell(NEWS)
            return True
        try:
            os.ftruncate(self._output, self._written)
            self._is_torn = False
        except OSError:
            self._is_torn = True  # half a frame: nothing may come after it
        return False

    def _tell_loss(self) -> None:
        text = f"{self._lost} bytes of output are lost: there was no room for them on the disk"
        if self._put(frames.NOTE, text.encode()):
            self._lost = 0

    def _tell_rest(self) -> None:
        """Appends notes on output that was lost or left out, at the end of the log."""
        if self._lost:
            self._tell_loss()
        if self._left_out:
            self._note(
                f"{self._left_out} bytes of output are left out: "
                f"the log of a script holds {LARGEST_OUTPUT} bytes"
            )

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._shell:
                self._code = os.waitstatus_to_exitcode(status)
                self._append(frames.SHELL_ENDED)


class ScriptEnding:
    """Ends a script with all its descendants: a signal, then SIGKILL after the grace period.

    The first signal is sent once: a process that starts later belongs to a script's own cleanup.
    """

    def __init__(
        self, token: str, grace_seconds: float, note: "Callable[[str], None]", *, first: int = TERM
    ) -> None:
        self._processes = ScriptProcesses(token, below=os.getpid())
        self._note = note
        self._over = time.monotonic() + grace_seconds
        self._pause = FIRST_LOOK_SECONDS
        self._gone_at: float | None = None
        self._killing = False
        self._hurried = False
        self._processes.signal(first)
        self.next_look = time.monotonic()

    def look(self, *, hurry: bool, quiet: bool) -> bool:
        """Checks for live processes, kills them when late; returns whether the script is over.

        `quiet`: no process can write to the output any more. `hurry`: shorten the grace period.
        """
        now = time.monotonic()
        if hurry and not self._hurried:
            self._hurried = True
            self._over = min(self._over, now + SHORT_GRACE_SECONDS)
        if now < self.next_look:
            return False
        self.next_look = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_LOOK_SECONDS)
        alive = self._processes.find()
        if not alive:
            self._gone_at = self._gone_at or now
            return quiet or now >= self._gone_at + OUTPUT_LIMIT_SECONDS
        if now < self._over:
            return False
        if self._killing:
            pids = ", ".join(str(pid) for pid in sorted(alive))
            self._note(f"These processes cannot be killed: {pids}")
            return True
        self._note(f"Killing {len(alive)} processes that did not end in time")
        self._kill()
        return False

    def _kill(self) -> None:
        self._killing = True
        self._over = time.monotonic() + KILL_LIMIT_SECONDS
        self._pause = FIRST_LOOK_SECONDS
        self.next_look = time.monotonic()
        # Repeated: a process that was just being forked is not seen the first time.
        over = time.monotonic() + KILL_LIMIT_SECONDS
        while self._processes.signal(KILL) and time.monotonic() < over:
            time.sleep(FIRST_LOOK_SECONDS)
