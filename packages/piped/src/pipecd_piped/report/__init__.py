# SPDX-License-Identifier: Apache-2.0
"""Reports to the control plane: statuses, stage logs, metadata, outcomes of commands."""
