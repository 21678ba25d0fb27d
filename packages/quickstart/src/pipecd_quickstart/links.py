# SPDX-License-Identifier: Apache-2.0
"""Links that sign a browser in to the quickstart: asked of its server, shown on a terminal only."""

import sys

from pipecd_model.errors import StateError
from pipecd_quickstart.folder import QuickstartFolder
from pipecd_quickstart.processes import program
from pipecd_runtime import process as child
from pipecd_runtime.process import own, word


async def make_link(folder: QuickstartFolder) -> str:
    """Returns a new link. Raises StateError when the server makes none."""
    process = await child.start(
        (
            *(word(program("pipecd")), *own("sign-in-link", "--project", "default", "--data-dir")),
            word(folder.control_plane),
        ),
        stdout=child.PIPE,
        stderr=child.PIPE,
        env=child.operator_environment(),
    )
    output, errors = await process.communicate()
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip().removeprefix("error: ")
        raise StateError(f"there is no sign-in link: {said[:400]}")
    return output.decode().strip()


async def describe_link(folder: QuickstartFolder, *, again: str) -> str:
    """Returns what to open in a browser; where nobody is at a terminal, how to get a link there.

    What is not a terminal is a file, perhaps a log: a secret does not belong there.
    """
    if not sys.stdout.isatty():
        return f"To open the console, signed in: {again}"
    try:
        link = await make_link(folder)
    except StateError as error:
        return f"{error.with_hint()}"
    return (
        "Open the console on this machine, signed in (works once, for ten minutes):\n\n"
        f"  {link}\n\n"
        f"Another link: {again}\n"
    )
