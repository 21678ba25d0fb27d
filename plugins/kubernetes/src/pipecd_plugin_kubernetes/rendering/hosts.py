# SPDX-License-Identifier: Apache-2.0
"""Which hosts rendering may fetch from: those that the piped file names, and no others."""

from pipecd_plugin_kubernetes.config import KubernetesPluginConfig
from pipecd_sdk.kit.hosts import Hosts, parse_address


def read_allowed_hosts(config: KubernetesPluginConfig) -> Hosts:
    """Returns what the piped file allows: the hosts it lists, and those of its charts."""
    listed = list(config.allowed_hosts)
    for address in (
        *(each.address for each in config.chart_repositories),
        *(each.address for each in config.chart_registries),
    ):
        full = address if "://" in address else f"oci://{address}"
        if (found := parse_address(full)) and found.host:
            listed.append(found.host)
    return Hosts(listed)
