# SPDX-License-Identifier: Apache-2.0
"""Runs deployments stage by stage, and stops, skips or rolls back stages."""
