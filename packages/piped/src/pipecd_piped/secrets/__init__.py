# SPDX-License-Identifier: Apache-2.0
"""Secrets in piped: the keys that decrypt them, and the decrypted values, for masking."""

from pipecd_piped.secrets.keys import SecretKeys, read_keys
from pipecd_piped.secrets.known import KnownSecrets, OpenedSecrets

__all__ = ["KnownSecrets", "OpenedSecrets", "SecretKeys", "read_keys"]
