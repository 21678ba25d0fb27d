# SPDX-License-Identifier: Apache-2.0
"""Opens a page in the browser of whoever types."""

import os
import shutil
import sys
from typing import Final

from pipecd_runtime.arguments import word
from pipecd_runtime.environment import choose_environment
from pipecd_runtime.process import spawn_detached

# What finds the person's screen and browser. No credential of pipectl is among them.
_VARIABLES: Final = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_",
    "DESKTOP_SESSION",
    "GNOME_",
    "KDE_",
    "BROWSER",
)


def has_display() -> bool:
    """Returns whether a browser on this machine would be seen by who types here."""
    if os.environ.get("SSH_CONNECTION") or not sys.stderr.isatty():
        return False
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(url: str) -> bool:
    """Opens a page; returns whether a program took it, which may still fail to show it."""
    program = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if program is None:
        return False
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        spawn_detached(
            (word(program), word(url)),
            env=choose_environment(_VARIABLES),
            stdin=nothing,
            stdout=nothing,
        )
    except OSError:
        return False
    finally:
        os.close(nothing)
    return True
