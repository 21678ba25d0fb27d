# SPDX-License-Identifier: Apache-2.0
"""The plugin `kubernetes_multicluster`: the same stages under other names, as files have them."""

from functools import cached_property
from typing import Any

from msgspec.structs import replace

from pipecd_plugin_kubernetes.plugin import Kubernetes
from pipecd_sdk import serve


class KubernetesMulticluster(Kubernetes):
    """Deploys manifests to several Kubernetes clusters."""

    @cached_property
    def stages(self) -> Any:
        """Returns the stages of the plugin for one cluster, each called `K8S_MULTI_…`."""
        found = {}
        for definition in super().stages.values():
            name = definition.name.replace("K8S_", "K8S_MULTI_", 1)
            found[name] = replace(definition, name=name)
        return found


def main() -> None:
    """Runs the executable `pipecd-plugin-kubernetes-multicluster`."""
    serve(KubernetesMulticluster())


if __name__ == "__main__":
    main()
