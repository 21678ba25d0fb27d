# SPDX-License-Identifier: Apache-2.0
"""What a commit would change: the manifests of two commits side by side. Nobody is asked. Pure."""

from pipecd_plugin_cloudrun.compare import mask_environment
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_sdk import Preview
from pipecd_sdk.kit.diff import diff, format_unified


def preview_change(running: RunManifest | None, target: RunManifest) -> Preview:
    """Returns the difference of two manifests, as people wrote them."""
    what = f"{target.kind.lower()} {target.name}"
    if running is None:
        return Preview(
            summary=f"{what} is deployed for the first time",
            details=format_unified({}, _show(target, is_secret=target.is_secret)),
        )
    nodes = diff(
        running.raw, target.raw, equate_empty=True, numeric_strings=True, bool_strings=True
    )
    if not nodes:
        return Preview(summary=f"no change of {what}", no_change=True)
    is_secret = running.is_secret or target.is_secret
    details = format_unified(
        _show(running, is_secret=is_secret), _show(target, is_secret=is_secret)
    )
    count = len(nodes)
    return Preview(
        summary=f"{count} change{'s' * (count > 1)} of {what}",
        details=details or "only values of variables change, which are not shown\n",
    )


def _show(manifest: RunManifest, *, is_secret: bool) -> object:
    return mask_environment(manifest.raw) if is_secret else manifest.raw
