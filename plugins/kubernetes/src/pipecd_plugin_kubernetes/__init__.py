# SPDX-License-Identifier: Apache-2.0
"""Deploys manifests to Kubernetes: one cluster or many, all at once or by stages."""
