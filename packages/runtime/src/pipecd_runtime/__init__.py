# SPDX-License-Identifier: Apache-2.0
"""What agent, server, command line and SDK share while they run. Standard library only."""
