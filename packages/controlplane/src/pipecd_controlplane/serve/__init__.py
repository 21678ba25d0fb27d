# SPDX-License-Identifier: Apache-2.0
"""From flags and files to what a server is told: used by the command line only."""
