# SPDX-License-Identifier: Apache-2.0
"""One executable file from a plugin's folder: what an agent can copy, rename and run.

`closure.py` finds what the plugin needs, `collect.py` gathers it, `pack.py` makes the file, whose
first lines are `boot.py`.
"""
