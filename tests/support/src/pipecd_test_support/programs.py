# SPDX-License-Identifier: Apache-2.0
"""Programs that tests start by their file."""

from pathlib import Path
from typing import Final

GO_PLUGIN: Final = Path(__file__).with_name("go_plugin.py")
