# SPDX-License-Identifier: Apache-2.0
"""Where objects are kept, as the configuration file says it."""

from pathlib import Path

import pytest

from pipecd_controlplane.serve import config
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.blobs.config import (
    AwsProfile,
    BlobConfig,
    BlobFolder,
    KeyFiles,
    S3Bucket,
    WebIdentity,
)
from pipecd_controlplane.store.postgres.config import PostgresServer


def write(folder: Path, spec: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(f"apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n{spec}")
    return file


@pytest.mark.parametrize(
    ("filestore", "expected"),
    [
        ("{}", None),
        ("{type: FOLDER}", None),
        ("{config: {path: /srv/blobs}}", BlobFolder(folder=Path("/srv/blobs"))),
        (
            "{type: S3, config: {bucket: b, region: r, prefix: p}}",
            S3Bucket(bucket="b", region="r", prefix="p"),
        ),
        (
            "{type: S3, config: {bucket: b, region: r, profile: p, credentialsFile: /f}}",
            S3Bucket(bucket="b", region="r", credentials=AwsProfile(file=Path("/f"), name="p")),
        ),
        (
            "{type: S3, config: {bucket: b, region: r, roleARN: a, tokenFile: /t}}",
            S3Bucket(
                bucket="b",
                region="r",
                credentials=WebIdentity(role_arn="a", token_file=Path("/t")),
            ),
        ),
        (
            """{type: MINIO, config: {endpoint: 'http://m:9000/', bucket: b, accessKeyFile: /a,
                secretKeyFile: /s, autoCreateBucket: true}}""",
            S3Bucket(
                bucket="b",
                endpoint="http://m:9000",
                credentials=KeyFiles(access_key=Path("/a"), secret_key=Path("/s")),
                create_bucket=True,
            ),
        ),
    ],
)
def test_each_type_becomes_a_store(
    tmp_path: Path, filestore: str, expected: BlobConfig | None
) -> None:
    assert config.read(write(tmp_path, f"  filestore: {filestore}\n")).blobs == expected


def test_logs_leave_a_shared_database_only_for_a_store_that_all_servers_have(
    tmp_path: Path,
) -> None:
    """What one server seals into its own folder, another one would report as lost."""
    shared = PostgresServer(url="postgresql://pipecd@db/pipecd")
    folder = BlobFolder(folder=tmp_path)

    assert ServerSettings(data_dir=tmp_path).seals
    assert ServerSettings(data_dir=tmp_path, postgres=shared, blobs=folder).seals
    assert not ServerSettings(data_dir=tmp_path, postgres=shared).seals
