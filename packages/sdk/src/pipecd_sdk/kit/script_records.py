# SPDX-License-Identifier: Apache-2.0
"""Where a plugin records the scripts that it runs, so that the next process, and piped, find them.

piped gives the folder in the variable `SCRIPTS_VARIABLE`, ends the scripts on record when a stage
is over, and removes the records of a deployment when it is.

Example:
    >>> from pathlib import Path
    >>> folder = find_deployment_folder(Path("/data/scripts"), "deployment-1")
    >>> str(folder / f"{format_record_prefix('stage-1', 0)}0")
    '/data/scripts/deployment-1/stage-1-0.0'
"""

from pipecd_runtime.script_records import (
    find_deployment_folder,
    format_record_prefix,
    to_folder_name,
)
from pipecd_wire.headers import SCRIPTS_VARIABLE

__all__ = [
    "SCRIPTS_VARIABLE",
    "find_deployment_folder",
    "format_record_prefix",
    "to_folder_name",
]
