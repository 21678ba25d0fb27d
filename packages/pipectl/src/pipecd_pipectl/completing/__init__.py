# SPDX-License-Identifier: Apache-2.0
"""Completion with TAB: the scripts of the shells, and what can stand where the cursor is."""

from typing import Final

VARIABLE: Final = "_PIPECTL_COMPLETE"
"""Set by the scripts of the shells; the name that click derives from the program's."""
