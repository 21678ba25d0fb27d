# SPDX-License-Identifier: Apache-2.0
"""The sign-ins of a plugin: one for each deploy target, made at its first use, in a thread."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pipecd_aws.account import AT_ONCE, AwsAccount, AwsRetry
from pipecd_aws.config import AwsTarget
from pipecd_aws.sign_in import Clients, SignIn
from pipecd_sdk import Clock, StageLog


class AwsAccounts:
    """Accounts by their sign-in. Making one costs nothing; botocore is loaded by its first call.

    Example:
        account = self.accounts.get(target.config)
    """

    def __init__(self) -> None:
        self._accounts: dict[SignIn, AwsAccount] = {}

    def get(self, target: AwsTarget) -> AwsAccount:
        """Returns the account of a deploy target; the same one for the same sign-in."""
        sign_in = SignIn(
            region=target.region,
            profile=target.profile,
            credentials_file=target.credentials_file,
            role_arn=target.role_arn,
            token_file=target.token_file,
            endpoint_url=target.endpoint_url,
        )
        found = self._accounts.get(sign_in)
        if found is None:
            found = self._accounts[sign_in] = AwsAccount(
                clients=Clients(sign_in),
                threads=ThreadPoolExecutor(AT_ONCE, thread_name_prefix="aws"),
                clock=Clock(),
            )
        return found

    def open(self, target: AwsTarget, *, clock: Clock, log: StageLog | None = None) -> AwsAccount:
        """Returns the account for one piece of work: it waits by this clock.

        With a log, it tells there which calls are tried again, and why.
        """
        account = self.get(target)
        if log is None:
            return account.report_to(clock=clock)
        return account.report_to(clock=clock, on_retry=partial(_report_retry, log))


def _report_retry(log: StageLog, retry: AwsRetry) -> None:
    log.info("%s: %s; tried again in %.1f seconds", retry.what, retry.reason, retry.pause_seconds)
