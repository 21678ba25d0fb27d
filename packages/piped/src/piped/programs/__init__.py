# SPDX-License-Identifier: Apache-2.0
"""Programs that piped runs: fetch and verify one, start it, read its output, end what it leaves.

Knows no plugin protocol: `piped.plugins` speaks it with the processes that are started here.
"""
