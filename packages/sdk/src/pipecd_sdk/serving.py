# SPDX-License-Identifier: Apache-2.0
"""The last line of a plugin's module."""

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from pipecd_sdk.plugin import StagePlugin


def serve(plugin: StagePlugin, *, version: str, args: Sequence[str] | None = None) -> NoReturn:
    """Be the plugin's process: read the command line, serve until told to stop, exit.

    Example:
        def main() -> None:
            serve(Wait(), version="0.1.0")
    """
    gc.disable()  # nothing that is loaded now is garbage, and to look for it takes its time
    # Here and not above: a module that only declares a plugin, as a test does, needs no gRPC.
    from pipecd_sdk._glue.app import main  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    sys.exit(main(plugin, version=version, args=sys.argv[1:] if args is None else args))
