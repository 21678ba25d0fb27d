# SPDX-License-Identifier: Apache-2.0
"""Deploys a folder of the repository to directories: releases side by side, switched by a link."""
