# SPDX-License-Identifier: Apache-2.0
"""The plugin for Terraform and OpenTofu."""
