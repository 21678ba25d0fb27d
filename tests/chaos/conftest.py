# SPDX-License-Identifier: Apache-2.0
"""The kit is no distribution: its tests find it by its folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
