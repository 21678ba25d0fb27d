# SPDX-License-Identifier: Apache-2.0
"""Syncs and rollbacks, each in a process of its own that kills itself at a chosen instruction.

Reads a JSON object from each line and forks, so that a hundred deaths cost one start of Python.
Answers a line: how many instructions it took, `killed`, or `failed`.
"""

import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from pipecd_plugin_files.config import FilesOptions
from pipecd_plugin_files.provider.site import ReleaseSite
from pipecd_plugin_files.provider.tree import Digests
from pipecd_plugin_files.source import SourceFolder
from pipecd_plugin_files.stages.order import Order
from pipecd_plugin_files.stages.rollback import roll_back
from pipecd_plugin_files.stages.rollout import roll_out

from pipecd_sdk import Commit, Deployment

seen = 0
limit = 0


def trace(frame: FrameType, event: str, argument: object) -> Any:
    """Count the instructions of the plugin and of what removes folders; at the limit, die."""
    global seen  # noqa: PLW0603 - a program of one function
    file = frame.f_code.co_filename
    if "pipecd_plugin_files" not in file and not file.endswith(("shutil.py", "pathlib.py")):
        return None
    frame.f_trace_opcodes = True
    frame.f_trace_lines = False
    if event == "opcode":
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace


def main() -> None:
    for line in sys.stdin:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            work(json.loads(line))
            os.write(writer, str(seen).encode())
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reader) as told:
            answer = told.read()
        if os.WIFSIGNALED(status):
            answer = "killed"
        sys.stdout.write(f"{answer or 'failed'}\n")
        sys.stdout.flush()


def work(given: dict[str, Any]) -> None:
    global limit  # noqa: PLW0603
    limit = given["limit"]
    folder = SourceFolder(
        path=given["folder"],
        excluded=lambda _: False,
        hidden=lambda _: False,
        options=FilesOptions(),
        commit=given["commit"],
    )
    order = Order(
        site=ReleaseSite(Path(given["site"]), flush=False),
        deployment=Deployment(
            id=given["deployment"],
            application_id="application-1",
            application_name="shop",
            project_id="project-1",
            piped_id="piped-1",
            commit=Commit(hash=given["commit"], message="", author="", branch=""),
            created_at=datetime.fromtimestamp(given["at"], UTC),
        ),
        keep=2,
        digests=Digests(),
        stop=threading.Event(),
        now=given["at"],
    )
    sys.settrace(trace)
    if given["what"] == "rollout":
        roll_out(order, folder)
    else:
        roll_back(order, folder)
    sys.settrace(None)


main()
