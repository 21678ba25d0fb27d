# SPDX-License-Identifier: Apache-2.0
"""Credentials files as people download them, whose token endpoint is a server of the test."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ACCOUNT = "piped@shop.iam.gserviceaccount.com"


@cache
def make_private_key() -> str:
    """A key of a service account; one for all tests of a process, because it takes time."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def write_key_file(file: Path, token_address: str) -> Path:
    """A key of a service account."""
    return write_json(
        file,
        {
            "type": "service_account",
            "project_id": "shop",
            "private_key_id": "1",
            "private_key": make_private_key(),
            "client_email": ACCOUNT,
            "client_id": "1",
            "token_uri": token_address,
        },
    )


def write_federation_file(file: Path, token_address: str, subject_token: str) -> Path:
    """A file of workload identity federation, with the token of the other provider beside it."""
    subject = file.with_suffix(".subject")
    subject.write_text(subject_token)
    return write_json(
        file,
        {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": token_address,
            "credential_source": {"file": str(subject)},
        },
    )


def write_json(file: Path, value: dict[str, Any]) -> Path:
    """Any file of credentials."""
    file.write_text(json.dumps(value))
    file.chmod(0o600)
    return file
