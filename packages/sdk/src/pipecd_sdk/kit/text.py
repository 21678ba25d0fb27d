# SPDX-License-Identifier: Apache-2.0
"""Text from a platform, made safe to show: control characters become visible, lines become one.

Example:
    >>> make_printable_line("denied\\x1b]0;title\\x07 by\\nwebhook")
    'denied\\\\x1b]0;title\\\\x07 by webhook'
"""

from pipecd_runtime.terminal import make_printable, make_printable_line

__all__ = ["make_printable", "make_printable_line"]
