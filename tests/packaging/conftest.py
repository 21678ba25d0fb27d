# SPDX-License-Identifier: Apache-2.0
"""Makes the web server of the tests importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
