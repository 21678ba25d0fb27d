# SPDX-License-Identifier: Apache-2.0
"""What the control plane knows, kept close: applications, deployments, commands."""
