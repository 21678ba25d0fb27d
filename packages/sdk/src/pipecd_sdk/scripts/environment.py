# SPDX-License-Identifier: Apache-2.0
"""What scripts get of the environment, and where the agent has their records."""

from pathlib import Path

from pipecd_runtime.process import choose_environment, operator_environment
from pipecd_sdk.scripts.records import find_scripts_folder
from pipecd_wire.headers import SCRIPTS_VARIABLE

__all__ = ["choose_environment", "locate_scripts", "operator_environment"]


def locate_scripts() -> Path:
    """Returns the folder of the records of this process's agent."""
    return find_scripts_folder(choose_environment((SCRIPTS_VARIABLE,)))
