# SPDX-License-Identifier: Apache-2.0
"""Programs that piped runs: fetches, verifies and starts them, reads their output, ends orphans.

This package does not know the plugin protocol: `pipecd_piped.plugins` speaks it with the processes.
"""
