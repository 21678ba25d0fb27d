# SPDX-License-Identifier: Apache-2.0
"""Plans deployments: asks the plugins for the sync strategy and the list of stages."""
