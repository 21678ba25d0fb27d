# SPDX-License-Identifier: Apache-2.0
"""Deploys functions to AWS Lambda: versions, an alias, traffic step by step."""
