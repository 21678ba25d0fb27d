# SPDX-License-Identifier: Apache-2.0
"""ANALYSIS: look at metrics, logs and addresses before a pipeline goes on."""
