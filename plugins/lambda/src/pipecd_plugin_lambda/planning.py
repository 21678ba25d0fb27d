# SPDX-License-Identifier: Apache-2.0
"""The version and the strategy of a deployment, and what it would change. Pure."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from pipecd_plugin_lambda.manifest import FunctionManifest, GitSource
from pipecd_sdk import Preview, Strategy, SyncStrategy, Version
from pipecd_sdk.kit.diff import MASK, MISSING, diff, format_unified
from pipecd_sdk.kit.hosts import hide_password, parse_address
from pipecd_sdk.kit.images import parse_image
from pipecd_sdk.kit.text import make_printable

_COMMIT_PATHS: Final = {
    "github.com": "commit",
    "gitlab.com": "-/commit",
    "bitbucket.org": "commits",
}
_HIDDEN: Final = frozenset({"environments", "environment", "imageconfig"})
"""Fields that may hold a secret in clear text."""


def find_version(manifest: FunctionManifest, region: str = "") -> Version:
    """Returns what a commit deploys: the tag of an image, a version of an object, or a ref."""
    if manifest.image:
        image = parse_image(manifest.image)
        return Version(name=image.name, version=image.version, url=image.text)
    if s3 := manifest.s3:
        version = s3.get("S3ObjectVersion", "")
        where = f"{quote(s3['S3Bucket'])}?prefix={quote(s3['S3Key'], safe='')}"
        return Version(
            name=s3["S3Key"],
            version=version or s3["S3Key"],
            url=f"https://console.aws.amazon.com/s3/object/{where}"
            + (f"&region={quote(region)}" if region else "")
            + (f"&versionId={quote(version)}" if version else ""),
        )
    source = manifest.source
    if source is None:
        return Version(name=manifest.name, version=manifest.commit[:7])
    return _find_source_version(source)


def _find_source_version(source: GitSource) -> Version:
    address = parse_address(source.git)
    plain = source.git.removesuffix(".git").rstrip("/")
    if address is None:
        return Version(name=hide_password(plain), version=source.ref)
    path = (
        plain.partition("://")[2].partition("/")[2] if "://" in plain else plain.rpartition(":")[2]
    )
    word = _COMMIT_PATHS.get(address.host)
    url = f"https://{address.host}/{path}/{word}/{quote(source.ref)}" if word else ""
    return Version(name=path, version=source.ref, url=url)


def decide_strategy(running: FunctionManifest | None, target: FunctionManifest) -> Strategy:
    """Returns the strategy: the pipeline, unless there is nothing to compare with."""
    version = find_version(target).version
    if running is None:
        return Strategy(
            sync=SyncStrategy.QUICK_SYNC, summary=f"Quick sync to {version}, the first deployment"
        )
    before = find_version(running).version
    change = f"from {before} to {version}" if before != version else f"{version} configured anew"
    return Strategy(sync=SyncStrategy.PIPELINE, summary=f"Pipeline sync, {change}")


def preview_change(running: FunctionManifest | None, target: FunctionManifest) -> Preview:
    """Returns what a commit would change of the function; nothing is run, nobody is asked."""
    after = _show(target)
    if running is None:
        return Preview(
            summary=f"the function {target.name} would be deployed for the first time",
            details=make_printable(format_unified(MISSING, after)),
        )
    nodes = diff(_show_plainly(running), _show_plainly(target))
    if not nodes:
        return Preview(summary="nothing would change", no_change=True)
    plural = "s" if len(nodes) > 1 else ""
    return Preview(
        summary=f"{len(nodes)} field{plural} of {target.name} would change",
        details=make_printable(format_unified(_show(running, target), after)),
    )


def _hide_address(source: Any) -> Any:
    if not isinstance(source, Mapping):
        return source
    return {
        key: hide_password(value) if isinstance(value, str) else value
        for key, value in source.items()
    }


def _show_plainly(manifest: FunctionManifest) -> dict[str, Any]:
    return {**manifest.spec, "alias": manifest.options.input.alias}


def _show(manifest: FunctionManifest, other: FunctionManifest | None = None) -> dict[str, Any]:
    """Returns a manifest as it may be shown; variables that hold secrets have no values."""
    shown = {
        key: _hide_address(value) if str(key).lower() == "source" else value
        for key, value in _show_plainly(manifest).items()
    }
    if not (manifest.hides_values or (other is not None and other.hides_values)):
        return shown
    return {
        key: _mask(value) if str(key).lower() in _HIDDEN else value for key, value in shown.items()
    }


def _mask(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask(item) for key, item in value.items()}
    return MASK
