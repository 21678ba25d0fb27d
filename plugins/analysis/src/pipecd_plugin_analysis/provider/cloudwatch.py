# SPDX-License-Identifier: Apache-2.0
"""Amazon CloudWatch: GetMetricData. boto3 is loaded with the first query, and runs in a thread."""

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any, Final

from pipecd_plugin_analysis.config import CloudWatchProvider
from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider.base import EvaluationError, MetricAnswer, read_values
from pipecd_plugin_analysis.provider.http import show_text

PERIOD_SECONDS: Final = 60
REQUEST_SECONDS: Final = 20
MOST_PAGES: Final = 20


class CloudWatch:
    """The metrics of an account in a region."""

    def __init__(self, config: CloudWatchProvider) -> None:
        self._config = config
        self._client: Any = None
        self._lock = threading.Lock()

    async def query(self, query: str, window: Window) -> MetricAnswer:
        queries = read_queries(query)
        return await asyncio.to_thread(self._fetch, queries, window)

    def _fetch(self, queries: list[dict[str, Any]], window: Window) -> MetricAnswer:
        import botocore.exceptions  # noqa: PLC0415 - an installation without AWS never needs it

        values: list[float] = []
        warnings: list[str] = []
        asked: dict[str, Any] = {
            "MetricDataQueries": queries,
            # Values belong to the start of their period.
            "StartTime": window.start
            - timedelta(seconds=window.start.timestamp() % PERIOD_SECONDS),
            "EndTime": window.end,
        }
        try:
            for _ in range(MOST_PAGES):
                page = self._open().get_metric_data(**asked)
                for result in page.get("MetricDataResults", ()):
                    values += read_values(result.get("Values", ()))
                warnings += [str(each.get("Value"))[:300] for each in page.get("Messages", ())]
                if not page.get("NextToken"):
                    break
                asked["NextToken"] = page["NextToken"]
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
            raise EvaluationError(f"CloudWatch: {show_text(str(error))}") from None
        return MetricAnswer(values=values, warnings=warnings[:5])

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _make_client(self._config)
            return self._client


def read_queries(query: str) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries of a query: an expression, or JSON of one or several.

    Raises EvaluationError.
    """
    if not query.lstrip().startswith(("{", "[")):
        return [{"Id": "q", "Expression": query, "Period": PERIOD_SECONDS, "ReturnData": True}]
    try:
        document = json.loads(query)
    except ValueError as error:
        raise EvaluationError(f"the query is no JSON: {error}") from None
    queries = document if isinstance(document, list) else [document]
    if not queries or not all(isinstance(each, dict) for each in queries):
        raise EvaluationError("the query is no list of MetricDataQuery")
    return queries


def _make_client(config: CloudWatchProvider) -> Any:
    import boto3  # noqa: PLC0415
    import botocore.config  # noqa: PLC0415
    import botocore.session  # noqa: PLC0415

    core = botocore.session.Session()
    if config.credentials_file:
        core.set_config_variable("credentials_file", config.credentials_file)
    session = boto3.Session(
        botocore_session=core, profile_name=config.profile or None, region_name=config.region
    )
    if config.role_arn:
        _assume_role(core, config)
    return session.client(
        "cloudwatch",
        endpoint_url=config.address or None,
        config=botocore.config.Config(
            connect_timeout=REQUEST_SECONDS,
            read_timeout=REQUEST_SECONDS,
            retries={"mode": "standard", "max_attempts": 3},
        ),
    )


def _assume_role(core: Any, config: CloudWatchProvider) -> None:
    """Has the session take on the role with the token of the file, and renew it."""
    import botocore.credentials  # noqa: PLC0415

    provider = botocore.credentials.AssumeRoleWithWebIdentityProvider(
        load_config=lambda: {
            "profiles": {
                "pipecd": {
                    "role_arn": config.role_arn,
                    "web_identity_token_file": config.token_file,
                }
            }
        },
        client_creator=core.create_client,
        profile_name="pipecd",
        disable_env_vars=True,
    )
    chain = botocore.credentials.CredentialResolver(providers=[provider])
    core.register_component("credential_provider", chain)
