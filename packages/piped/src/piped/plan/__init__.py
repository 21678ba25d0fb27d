# SPDX-License-Identifier: Apache-2.0
"""Decides how a deployment is done: strategy and stage list, asked from plugins."""
