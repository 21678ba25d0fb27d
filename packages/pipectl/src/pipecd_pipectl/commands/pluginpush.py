# SPDX-License-Identifier: Apache-2.0
"""`pipectl plugin push`: a plugin's files into a registry, for agents of any platform."""

import sys
from dataclasses import replace

import click

from pipecd_model.oci import EMPTY, Reference, parse_reference
from pipecd_pipectl.output import echo, output_option, print_fields, print_json, wants_json
from pipecd_pipectl.pushing.artifact import (
    NO_CONFIG,
    PlatformFile,
    describe,
    index_of,
    layer_of,
    manifest_of,
    parse_files,
)
from pipecd_pipectl.pushing.login import find_login


@click.command()
@click.option(
    "--files",
    multiple=True,
    required=True,
    metavar="OS/ARCH=PATH,…",
    help="The executable of each platform, e.g. linux/amd64=./files; may be repeated.",
)
@click.option("--tag", required=True, help="The version, e.g. v1.2.0.")
@click.option("--registry", required=True, help="The host of the registry, e.g. ghcr.io.")
@click.option("--repository", required=True, help="The name in the registry, e.g. team/files.")
@click.option("--insecure", is_flag=True, help="Speak to the registry without TLS.")
@click.option("--username", help="Who you are to the registry; without it, what docker has kept.")
@click.option("--password-stdin", is_flag=True, help="Read the password from the standard input.")
@output_option
def push(
    *,
    files: tuple[str, ...],
    tag: str,
    registry: str,
    repository: str,
    insecure: bool,
    username: str | None,
    password_stdin: bool,
    output: str,
) -> None:
    """Push a plugin's executables as one artifact for all their platforms.

    Prints the address that agents take as `url`, with the digest that pins it.

    Example: pipectl plugin push --registry ghcr.io --repository team/files --tag v1
    --files linux/amd64=./files-amd64,linux/arm64=./files-arm64
    """
    if bool(username) != password_stdin:
        raise click.UsageError("--username and --password-stdin go together")
    reference = parse_reference(f"oci://{registry}/{repository}:{tag}")
    given = parse_files(files)
    login = (username, sys.stdin.read().rstrip("\r\n")) if username else find_login(registry)
    digest, sums = _push(reference, given, insecure=insecure, login=login)
    pinned = str(replace(reference, digest=digest))
    if wants_json(output):
        print_json({"url": pinned, "digest": digest, "sha256": sums})
    else:
        platforms = [(f"sha256 of {platform}", each) for platform, each in sums.items()]
        print_fields([("url", pinned), *platforms])


def _push(
    reference: Reference,
    files: tuple[PlatformFile, ...],
    *,
    insecure: bool,
    login: tuple[str, str] | None,
) -> tuple[str, dict[str, str]]:
    """Send everything; the digest of the index, and the sum of each platform's file."""
    from pipecd_pipectl.pushing.registry import RegistryClient  # noqa: PLC0415 - an HTTP client

    manifests = []
    sums = {}
    with RegistryClient(reference, insecure=insecure, login=login) as registry:
        registry.put_blob(describe(EMPTY, NO_CONFIG), NO_CONFIG)
        for file in files:
            layer = layer_of(file)
            echo(f"pushing {file.path} for {file.platform}", err=True)
            if not registry.put_blob(layer, file.path):
                echo("  is there already", err=True)
            manifest = manifest_of(layer)
            registry.put_document(describe("", manifest.encode()).digest, manifest)
            manifests.append((file.platform, manifest))
            sums[str(file.platform)] = layer.digest.removeprefix("sha256:")
        index = index_of(manifests)
        registry.put_document(reference.tag, index)
    return describe("", index.encode()).digest, sums
