# SPDX-License-Identifier: Apache-2.0
"""Signing in through others: GitHub, or any provider of OpenID Connect."""
