# SPDX-License-Identifier: Apache-2.0
"""The stages, each over one deploy target."""
