# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH100
"""The file that is run as the shim: finds the rest of it, which Python has compiled already.

With the argument `template` it is the process that shims are forked from.
"""

import os
import sys

if __name__ == "__main__":
    # Isolated, Python knows its standard library only. At the end: nothing of that is hidden.
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))
    if sys.argv[1:] == ["template"]:
        from pipecd_runtime.shim.template import serve as main
    else:
        from pipecd_runtime.shim.runner import main

    # Without Python's own ending, which takes longer than the rest.
    os._exit(main())
