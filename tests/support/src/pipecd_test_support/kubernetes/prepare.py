# SPDX-License-Identifier: Apache-2.0
"""Makes what the tests with a real cluster need, before they run: `make test-kubernetes`.

What cannot be made is told, and remembered as the reason why tests are skipped: that is no failure.
"""

import argparse
import sys
import time
from collections.abc import Callable

from pipecd_test_support.kubernetes.executables import BuildError, prepare_executables
from pipecd_test_support.kubernetes.packages import FetchError, prepare_tools


def main() -> None:
    """Build and fetch; tell how far it is, and what is missing."""
    options = argparse.ArgumentParser(description="Make what the tests with a cluster need.")
    options.add_argument("--limit-minutes", type=float, default=30.0, help="of the build, 30")
    limit_minutes = options.parse_args().limit_minutes
    begun = time.monotonic()
    _attempt(lambda: prepare_tools(say=_say))
    _attempt(lambda: prepare_executables(say=_say, limit_minutes=limit_minutes))
    _say(f"prepared in {time.monotonic() - begun:.0f} s")


def _attempt(make: Callable[[], object]) -> None:
    try:
        make()
    except (BuildError, FetchError, OSError) as error:
        _say(f"tests that need it are skipped: {error}")


def _say(sentence: str) -> None:
    sys.stdout.write(f"kubernetes: {sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
