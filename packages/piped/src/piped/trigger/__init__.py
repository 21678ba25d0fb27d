# SPDX-License-Identifier: Apache-2.0
"""What needs a deployment, and why."""

from piped.trigger.calls import ControlPlaneCalls
from piped.trigger.services import TriggerServices
from piped.trigger.trigger import Trigger

__all__ = ["ControlPlaneCalls", "Trigger", "TriggerServices"]
