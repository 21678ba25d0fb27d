# SPDX-License-Identifier: Apache-2.0
"""Deploys services and jobs to Google Cloud Run."""
