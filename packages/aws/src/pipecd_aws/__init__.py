# SPDX-License-Identifier: Apache-2.0
"""What the plugins for AWS share: sign-in, calls off the event loop, retries, sentences for errors.

Everything in `__all__` is meant for them; the modules behind it may change.
"""

from pipecd_aws.account import AwsAccount, AwsRetry, make_token, wait_until
from pipecd_aws.accounts import AwsAccounts
from pipecd_aws.config import AwsTarget
from pipecd_aws.errors import AwsError
from pipecd_aws.shapes import UnfitValueError, fit

__all__ = [
    "AwsAccount",
    "AwsAccounts",
    "AwsError",
    "AwsRetry",
    "AwsTarget",
    "UnfitValueError",
    "fit",
    "make_token",
    "wait_until",
]
