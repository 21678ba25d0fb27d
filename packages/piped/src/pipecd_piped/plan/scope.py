# SPDX-License-Identifier: Apache-2.0
"""The metadata and the secrets of a deployment, open while it is planned or runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipecd_piped.report.metadata import MetadataStore, MetadataStores
from pipecd_piped.secrets import KnownSecrets
from pipecd_wire.model.deployment_pb2 import Deployment


@dataclass(frozen=True, slots=True)
class DeploymentScope:
    """Opens the metadata and the secrets of a deployment together."""

    metadata: MetadataStores
    known: KnownSecrets

    @contextmanager
    def open(self, deployment: Deployment) -> Iterator[MetadataStore]:
        """Keep the metadata and the secrets of a deployment open while the block runs."""
        with self.known.opened(deployment), self.metadata.opened(deployment) as store:
            yield store
