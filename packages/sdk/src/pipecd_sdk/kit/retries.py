# SPDX-License-Identifier: Apache-2.0
"""How long to wait before a platform is asked again.

Example:
    >>> pauses = Backoff(first_seconds=0.5, longest_seconds=30, jitter=0)
    >>> [pauses.next_pause_seconds() for _ in range(3)]
    [0.5, 1.0, 2.0]
"""

from pipecd_runtime.backoff import Backoff

__all__ = ["Backoff"]
