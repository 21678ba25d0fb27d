# SPDX-License-Identifier: Apache-2.0
"""The trigger: decides which applications need a deployment, and creates it."""

from pipecd_piped.trigger.calls import ControlPlaneCalls
from pipecd_piped.trigger.services import TriggerServices
from pipecd_piped.trigger.trigger import Trigger

__all__ = ["ControlPlaneCalls", "Trigger", "TriggerServices"]
