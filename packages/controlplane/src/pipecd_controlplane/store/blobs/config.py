# SPDX-License-Identifier: Apache-2.0
"""Where objects are kept: the settings of a folder and of a bucket."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

FOLDER_NAME: Final = "blobs"
"""Of the folder in the data folder, unless the configuration names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobFolder:
    """A folder. Several servers must share it."""

    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsProfile:
    """A profile of a credentials file in the format of AWS."""

    file: Path | None = None
    """None is the file that the tools of AWS use."""
    name: str = ""
    """Empty is the default one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """Two files, one with the access key and one with the secret key."""

    access_key: Path
    secret_key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WebIdentity:
    """A role that is taken on with a token in a file, as pods of Kubernetes do."""

    role_arn: str
    token_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Bucket:
    """A bucket of AWS, or of anything that speaks S3."""

    bucket: str
    region: str = ""
    """Empty is that of the environment, or us-east-1."""
    endpoint: str = ""
    """Empty is AWS."""
    prefix: str = ""
    """Before all keys, so that several can share a bucket."""
    credentials: AwsProfile | KeyFiles | WebIdentity | None = None
    """None is the environment: variables, the identity of a pod, a task or a machine."""
    create_bucket: bool = False
    """Makes the bucket if there is none."""


BlobConfig: TypeAlias = BlobFolder | S3Bucket
"""Which store: a union of one type for each driver."""
