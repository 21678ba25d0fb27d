# SPDX-License-Identifier: Apache-2.0
"""RPCs that are still owed: answered UNIMPLEMENTED. This list only shrinks.

The server does not start when an RPC has neither a handler nor a place here, or has both.
"""

from typing import Final

OWN_DEPLOYMENT_SERVICE: Final = ("RetryStage", "RollBackDeployment")
OWN_APPLICATION_SERVICE: Final = ("ReleaseHold", "SetFreeze")
OWN_PROJECT_SERVICE: Final = ("ListAudit",)
