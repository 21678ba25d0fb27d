# SPDX-License-Identifier: Apache-2.0
"""JSON as programs in Go write it: for hashes and texts that must be theirs to the byte.

Example:
    >>> dumps({"page": "<b>&</b>"})
    '{"page":"\\\\u003cb\\\\u003e\\\\u0026\\\\u003c/b\\\\u003e"}'
"""

from pipecd_model.gojson import dumps

__all__ = ["dumps"]
