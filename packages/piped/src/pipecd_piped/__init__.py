# SPDX-License-Identifier: Apache-2.0
"""The agent: watches git and runs deployments."""
