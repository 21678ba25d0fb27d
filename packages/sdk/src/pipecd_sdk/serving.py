# SPDX-License-Identifier: Apache-2.0
"""`serve`: the whole process of a plugin."""

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from pipecd_sdk._version import find_package, find_version
from pipecd_sdk.plugin import StagePlugin


def serve(
    plugin: StagePlugin, *, version: str | None = None, args: Sequence[str] | None = None
) -> NoReturn:
    """Runs the plugin's process: reads the command line, serves until it is stopped, exits.

    `version` is what `version` prints and piped shows; without it it is that of the distribution
    that is named as the plugin's package (`pipecd-plugin-wait` for `pipecd_plugin_wait`). `args`
    are the words of the command line, by default those of this process. Never returns; exits with
    2 for options that cannot be used. Raises TypeError when no version is given and no such
    distribution is installed.

    Example:
        def main() -> None:
            serve(Wait())
    """
    version = version or find_version(find_package(plugin))
    gc.disable()  # nothing that is loaded now is garbage, and to look for it takes its time
    # Here and not above: a module that only declares a plugin, as a test does, needs no gRPC.
    from pipecd_sdk._glue.app import main  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    sys.exit(main(plugin, version=version, args=sys.argv[1:] if args is None else args))
