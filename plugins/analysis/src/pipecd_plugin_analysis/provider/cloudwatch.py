# SPDX-License-Identifier: Apache-2.0
"""Amazon CloudWatch: GetMetricData."""

import json
from datetime import timedelta
from typing import Any, Final

from pipecd_aws import AwsAccount, AwsError, AwsTarget
from pipecd_plugin_analysis.config import CloudWatchProvider
from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider.base import EvaluationError, MetricAnswer, read_values
from pipecd_sdk.kit.web import show_text

PERIOD_SECONDS: Final = 60
MOST_PAGES: Final = 20


def describe_account(config: CloudWatchProvider) -> AwsTarget:
    """Returns where a provider signs in, as all plugins for AWS describe it."""
    return AwsTarget(
        region=config.region,
        profile=config.profile,
        credentials_file=config.credentials_file,
        role_arn=config.role_arn,
        token_file=config.token_file,
        endpoint_url=config.address,
    )


class CloudWatch:
    """The metrics of an account in a region."""

    def __init__(self, account: AwsAccount) -> None:
        self._account = account

    async def query(self, query: str, window: Window) -> MetricAnswer:
        values: list[float] = []
        warnings: list[str] = []
        asked: dict[str, Any] = {
            "MetricDataQueries": read_queries(query),
            # Values belong to the start of their period.
            "StartTime": window.start
            - timedelta(seconds=window.start.timestamp() % PERIOD_SECONDS),
            "EndTime": window.end,
        }
        try:
            for _ in range(MOST_PAGES):
                page = await self._account.call("cloudwatch", "GetMetricData", asked)
                for result in page.get("MetricDataResults", ()):
                    values += read_values(result.get("Values", ()))
                warnings += [str(each.get("Value"))[:300] for each in page.get("Messages", ())]
                if not page.get("NextToken"):
                    break
                asked["NextToken"] = page["NextToken"]
        except AwsError as error:
            raise EvaluationError(f"CloudWatch: {show_text(str(error))}") from None
        return MetricAnswer(values=values, warnings=warnings[:5])


def read_queries(query: str) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries of a query: an expression, or JSON of one or several.

    Raises EvaluationError.
    """
    if not query.lstrip().startswith(("{", "[")):
        return [{"Id": "q", "Expression": query, "Period": PERIOD_SECONDS, "ReturnData": True}]
    try:
        document = json.loads(query)
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"the query is no JSON: {error}") from None
    queries = document if isinstance(document, list) else [document]
    if not queries or not all(isinstance(each, dict) for each in queries):
        raise EvaluationError("the query is no list of MetricDataQuery")
    return queries
