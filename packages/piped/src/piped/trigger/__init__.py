# SPDX-License-Identifier: Apache-2.0
"""The trigger: decides which applications need a deployment, and creates it."""

from piped.trigger.calls import ControlPlaneCalls
from piped.trigger.services import TriggerServices
from piped.trigger.trigger import Trigger

__all__ = ["ControlPlaneCalls", "Trigger", "TriggerServices"]
