# SPDX-License-Identifier: Apache-2.0
"""Makes the providers that a stage names, each once, with their secrets read."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from pipecd_aws import AwsAccounts
from pipecd_plugin_analysis.config import (
    AnalysisPluginConfig,
    CloudWatchProvider,
    DatadogProvider,
    HttpProvider,
    LokiProvider,
    NewRelicProvider,
    PrometheusProvider,
    ProviderConfig,
    StackdriverProvider,
)
from pipecd_plugin_analysis.provider.base import LogsProvider, MetricsProvider
from pipecd_plugin_analysis.provider.cloudwatch import CloudWatch, describe_account
from pipecd_plugin_analysis.provider.datadog import Datadog
from pipecd_plugin_analysis.provider.google import GoogleReader
from pipecd_plugin_analysis.provider.http import LARGEST_ANSWER
from pipecd_plugin_analysis.provider.json_endpoint import ApplicationEndpoint, JsonEndpoint
from pipecd_plugin_analysis.provider.loki import Loki
from pipecd_plugin_analysis.provider.newrelic import NewRelic
from pipecd_plugin_analysis.provider.prometheus import Prometheus
from pipecd_plugin_analysis.provider.secrets import read_login, read_secret
from pipecd_plugin_analysis.provider.stackdriver import Stackdriver
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.kit.web import WebClient


class Providers:
    """Everything that one stage may ask; connections end with the block."""

    def __init__(self, config: AnalysisPluginConfig) -> None:
        self._config = config
        self._http = WebClient(largest_bytes=LARGEST_ANSWER)
        self._accounts = AwsAccounts()
        self._sign_ins: dict[str, GoogleReader] = {}
        self.guarded = WebClient(Hosts(config.allowed_hosts, public=True), uses_proxy=False)
        """For addresses of applications."""
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._http)
        await self._opened.enter_async_context(self.guarded)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    def knows_past(self, name: str) -> bool:
        """Returns whether a provider can be asked about the past; an address of JSON cannot."""
        found = self._config.find_provider(name)
        return found is not None and found.knows_past

    async def open_metrics(self, name: str, *, json_path: str = "") -> MetricsProvider:
        """Returns a provider by its name; without a name, that of an application's address.

        Raises StageFailedError when there is none, or a secret of it cannot be read.
        """
        if not name:
            return ApplicationEndpoint(self.guarded, path=json_path)
        config = self._find(name)
        match config:
            case PrometheusProvider():
                login = await read_login(config.username_file, config.password_file)
                return Prometheus(self._http, config.address, login)
            case DatadogProvider():
                return Datadog(
                    self._http,
                    config.address,
                    api_key=await read_secret(config.api_key_file, config.api_key_data),
                    application_key=await read_secret(
                        config.application_key_file, config.application_key_data
                    ),
                )
            case CloudWatchProvider():
                return CloudWatch(self._accounts.get(describe_account(config)))
            case NewRelicProvider():
                return NewRelic(
                    self._http,
                    config.address,
                    account=config.account_id,
                    api_key=await read_secret(config.api_key_file, config.api_key_data),
                )
            case HttpProvider():
                headers = {
                    each.key: await read_secret(each.value_file) if each.value_file else each.value
                    for each in config.headers
                }
                return JsonEndpoint(
                    self._http,
                    config.address,
                    headers=headers,
                    path=json_path or config.json_path,
                )
            case LokiProvider() | StackdriverProvider():
                return await self._open_both(name, config)

    async def open_logs(self, name: str) -> LogsProvider:
        """Returns a provider of logs. Raises StageFailedError like `open_metrics`."""
        config = self._find(name)
        if not isinstance(config, LokiProvider | StackdriverProvider):
            raise StageFailedError(
                f"the provider {name!r} has no logs", hint="those of LOKI and STACKDRIVER have"
            )
        return await self._open_both(name, config)

    async def _open_both(
        self, name: str, config: LokiProvider | StackdriverProvider
    ) -> Loki | Stackdriver:
        if isinstance(config, LokiProvider):
            login = await read_login(config.username_file, config.password_file)
            return Loki(self._http, config.address, tenant=config.tenant, login=login)
        signed_in = self._sign_ins.setdefault(
            name, GoogleReader(config.service_account_file, config.project_id)
        )
        return Stackdriver(
            self._http,
            signed_in,
            monitoring=config.monitoring_address,
            logging=config.logging_address,
        )

    def _find(self, name: str) -> ProviderConfig:
        if (found := self._config.find_provider(name)) is None:
            raise StageFailedError(
                f"there is no analysis provider {name!r}",
                hint="add it to analysisProviders of the plugin in the piped file",
            )
        return found.config
