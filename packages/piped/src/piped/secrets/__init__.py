# SPDX-License-Identifier: Apache-2.0
"""Secrets in piped: the keys that open them, and which ones are open now, to be masked."""

from piped.secrets.keys import SecretKeys, read_keys
from piped.secrets.known import KnownSecrets, OpenedSecrets

__all__ = ["KnownSecrets", "OpenedSecrets", "SecretKeys", "read_keys"]
