# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH100
"""The file that is run as the shim: finds the rest of it, which Python has compiled already."""

import os
import sys

if __name__ == "__main__":
    # Isolated, Python knows its standard library only. At the end: nothing of that is hidden.
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))
    from pipecd_plugin_scriptrun.shim.runner import main

    # Without Python's own ending, which takes longer than the rest.
    os._exit(main())
