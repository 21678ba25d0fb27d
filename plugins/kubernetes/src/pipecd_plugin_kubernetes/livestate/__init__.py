# SPDX-License-Identifier: Apache-2.0
"""What runs: objects of clusters as they are now, kept by watches, and the trees made of them."""

from pipecd_plugin_kubernetes.livestate.cluster_watch import ClusterWatch
from pipecd_plugin_kubernetes.livestate.records import LiveObject
from pipecd_plugin_kubernetes.livestate.states import LiveStates, LiveView

__all__ = ["ClusterWatch", "LiveObject", "LiveStates", "LiveView"]
