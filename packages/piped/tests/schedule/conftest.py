# SPDX-License-Identifier: Apache-2.0
"""Makes the stand-ins of `support` importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
