# SPDX-License-Identifier: Apache-2.0
"""The temporary folders of this plugin."""

from typing import ClassVar

from pipecd_sdk.scratch import Scratch


class KubernetesScratch(Scratch):
    """A temporary folder that only we can read, until it is closed."""

    prefix: ClassVar[str] = "pipecd-kubernetes-"
