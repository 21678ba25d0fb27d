# SPDX-License-Identifier: Apache-2.0
"""Everything that goes up to the control plane: statuses, stage logs, metadata."""
