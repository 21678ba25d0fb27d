# SPDX-License-Identifier: Apache-2.0
"""The shim: the small process that keeps one script, whatever becomes of plugin and piped.

It runs as `python -I -S start.py …`, so everything here lives on the standard library, and on
little of that: each import is paid for by every script.
"""
