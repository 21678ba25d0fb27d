# SPDX-License-Identifier: Apache-2.0
"""The API of one Kubernetes cluster.

    cluster = await Cluster.connect(await load_connection(kubeconfig="/etc/kube/dev"))
    async with cluster:
        await cluster.apply(body, force=True)

A body is a plain dict; kinds are found by discovery. See `errors` for what is raised.
"""

from pipecd_plugin_kubernetes.client.caller import RetryNotice, RetryPolicy
from pipecd_plugin_kubernetes.client.cluster import Cluster
from pipecd_plugin_kubernetes.client.connection import Connection
from pipecd_plugin_kubernetes.client.errors import (
    AlreadyExistsError,
    ApiError,
    ClusterError,
    ConflictError,
    ConnectionConfigError,
    CredentialsError,
    FieldConflict,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    StatusCause,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnknownKindError,
)
from pipecd_plugin_kubernetes.client.locate import load_connection
from pipecd_plugin_kubernetes.client.resources import (
    ApiResource,
    ChangeType,
    Discovery,
    Listing,
    Object,
    ObjectRef,
    PatchType,
    WatchEvent,
)

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "ApiResource",
    "ChangeType",
    "Cluster",
    "ClusterError",
    "ConflictError",
    "Connection",
    "ConnectionConfigError",
    "CredentialsError",
    "Discovery",
    "FieldConflict",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "Listing",
    "NotFoundError",
    "Object",
    "ObjectRef",
    "PatchType",
    "RetryNotice",
    "RetryPolicy",
    "StatusCause",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "UnknownKindError",
    "WatchEvent",
    "load_connection",
]
