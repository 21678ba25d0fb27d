# SPDX-License-Identifier: Apache-2.0
"""RPCs that have no handler yet and return UNIMPLEMENTED. This list only shrinks.

The server does not start when an RPC has neither a handler nor a place here, or has both.
"""

from typing import Final

DEPLOYMENT_SERVICE: Final[tuple[str, ...]] = ()
APPLICATION_SERVICE: Final[tuple[str, ...]] = ()
