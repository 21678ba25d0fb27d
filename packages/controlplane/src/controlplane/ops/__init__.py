# SPDX-License-Identifier: Apache-2.0
"""What keeps the control plane running: its own log, later its timed jobs."""
