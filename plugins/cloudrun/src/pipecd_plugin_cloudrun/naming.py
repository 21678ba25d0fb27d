# SPDX-License-Identifier: Apache-2.0
"""Names of revisions, and the labels by which services are known to be ours, as upstream's."""

import re
from typing import Any, Final

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.images import parse_image

MANAGED_BY: Final = "pipecd-dev-managed-by"
PIPED: Final = "pipecd-dev-piped"
APPLICATION: Final = "pipecd-dev-application"
COMMIT_HASH: Final = "pipecd-dev-commit-hash"
REVISION_NAME: Final = "pipecd-dev-revision-name"
MANAGER: Final = "piped"
OURS: Final = frozenset({MANAGED_BY, PIPED, APPLICATION, COMMIT_HASH, REVISION_NAME})

LONGEST_NAME: Final = 63
_SHORT_COMMIT: Final = 7
_SHORT_DIGEST: Final = 8
_LABEL: Final = re.compile(r"[a-z0-9_-]{0,63}")


def make_revision_name(service: str, image: str, commit: str, *, attempt: int = 1) -> str:
    """Returns the name of the revision that a commit makes of a service.

    `attempt` tells names apart when the first one is taken by something else.

    Example:
        >>> make_revision_name("hello", "gcr.io/p/hello:v0.5.1", "2bf969a3dad0")
        'hello-v051-2bf969a'
        >>> make_revision_name("hello", "registry:5000/hello", "2bf969a3dad0", attempt=2)
        'hello-2bf969a-2'
        >>> make_revision_name("hello", "hello@sha256:0123456789ab", "2bf969a3dad0")
        'hello-01234567-2bf969a'
    """
    end = f"-{commit[:_SHORT_COMMIT].lower()}" + (f"-{attempt}" if attempt > 1 else "")
    middle = _shorten_version(image)[: LONGEST_NAME - len(service) - len(end) - 1].strip("-")
    return f"{service}-{middle}{end}" if middle else f"{service}{end}"


def _shorten_version(image: str) -> str:
    path, _, digest = image.partition("@")
    version = parse_image(path).version
    if ":" not in path.rpartition("/")[2]:
        version = digest.rpartition(":")[2][:_SHORT_DIGEST]
    return re.sub(r"[^a-z0-9-]+", "-", version.replace(".", "").lower())


def make_labels(*, piped_id: str, application_id: str, commit: str) -> dict[str, str]:
    """Returns the labels of a service. Raises StageFailedError for an id that cannot be one."""
    labels = {
        MANAGED_BY: MANAGER,
        PIPED: piped_id.lower(),
        APPLICATION: application_id.lower(),
        COMMIT_HASH: commit.lower(),
    }
    for key, value in labels.items():
        if not _LABEL.fullmatch(value):
            raise StageFailedError(f"the label {key} cannot have the value {value!r}")
    return labels


def is_ours(resource: dict[str, Any], application_id: str) -> bool:
    """Returns whether a service or job carries the labels of this application."""
    labels = resource.get("labels")
    return (
        isinstance(labels, dict)
        and labels.get(MANAGED_BY) == MANAGER
        and labels.get(APPLICATION) == application_id.lower()
    )


def strip_labels(labels: Any) -> dict[str, Any]:
    """Returns labels without ours: what people wrote."""
    if not isinstance(labels, dict):
        return {}
    return {key: value for key, value in labels.items() if key not in OURS}


def get_short_name(resource: Any) -> str:
    """Returns the last part of a resource's full name: `projects/…/revisions/web-1` → `web-1`."""
    return resource.rpartition("/")[2] if isinstance(resource, str) else ""
