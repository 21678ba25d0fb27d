# SPDX-License-Identifier: Apache-2.0
"""Runs deployments: stage after stage; stop, skip, roll back."""
