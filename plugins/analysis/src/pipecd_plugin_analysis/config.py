# SPDX-License-Identifier: Apache-2.0
"""What people write for this plugin: providers in the piped file, and what a stage looks at."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Literal, TypeAlias

from pipecd_plugin_analysis.jsonpath import BadJsonPathError, parse_path
from pipecd_sdk import (
    ApplicationConfig,
    Base64Secret,
    Duration,
    PluginConfig,
    Report,
    StageConfig,
    field,
)
from pipecd_sdk.constraints import InRange
from pipecd_sdk.kit.analysis import HttpConfig, LogConfig, MetricConfig
from pipecd_sdk.kit.regex import BadRegexError, compile_regex

MOST_ANALYZERS: Final = 50
"""Metrics, logs and checks of one stage."""
NO_PAST: Final = "PREVIOUS asks about the past, and an address with JSON only knows what is now"


def _check_address(report: Report, address: str, key: str = "address") -> None:
    if address and not report.is_broken(key) and not address.startswith(("http://", "https://")):
        report.fault(key, message=f"not an address: {address!r}", hint="e.g. https://example.com")


def _check_pair(report: Report, keys: tuple[str, str], given: tuple[object, object]) -> None:
    """Reports a secret that is given neither as a file nor as data, or both ways."""
    if not (report.is_broken(keys[0]) or report.is_broken(keys[1])) and bool(given[0]) == bool(
        given[1]
    ):
        report.fault(keys[0], message=f"set exactly one of {keys[0]} and {keys[1]}")


class PrometheusProvider(PluginConfig):
    """A Prometheus, or anything that speaks its API."""

    address: str
    """Its URL."""
    username_file: str = ""
    """A file with the name for basic authentication."""
    password_file: str = ""
    """A file with the password for basic authentication; used when both files are given."""

    def check(self, report: Report) -> None:
        _check_address(report, self.address)


class DatadogProvider(PluginConfig):
    """Datadog."""

    address: str = "datadoghq.com"
    """The site, e.g. `us3.datadoghq.com`, `datadoghq.eu`, `ddog-gov.com`; or a whole URL."""
    api_key_file: str = ""
    """A file with the API key."""
    api_key_data: Base64Secret = Base64Secret("")
    """The API key itself, as base64."""
    application_key_file: str = ""
    """A file with the application key."""
    application_key_data: Base64Secret = Base64Secret("")
    """The application key itself, as base64."""

    def check(self, report: Report) -> None:
        _check_pair(report, ("apiKeyFile", "apiKeyData"), (self.api_key_file, self.api_key_data))
        _check_pair(
            report,
            ("applicationKeyFile", "applicationKeyData"),
            (self.application_key_file, self.application_key_data),
        )


class StackdriverProvider(PluginConfig):
    """Google Cloud: metrics of Cloud Monitoring, logs of Cloud Logging."""

    service_account_file: str = ""
    """The key of a service account; empty means the identity of the machine."""
    project_id: str = ""
    """The project that is asked; empty means that of the service account."""
    monitoring_address: str = "https://monitoring.googleapis.com"
    """Where Cloud Monitoring is."""
    logging_address: str = "https://logging.googleapis.com"
    """Where Cloud Logging is."""

    def check(self, report: Report) -> None:
        _check_address(report, self.monitoring_address, "monitoringAddress")
        _check_address(report, self.logging_address, "loggingAddress")


class CloudWatchProvider(PluginConfig):
    """Amazon CloudWatch."""

    region: str
    """The region, e.g. `eu-west-1`."""
    profile: str = ""
    """A profile of the credentials file."""
    credentials_file: str = ""
    """The credentials file; empty means what the AWS tools use on this machine."""
    role_arn: str = field(name="roleARN", default="")
    """A role to take on; with tokenFile by that token, without it by the other credentials."""
    token_file: str = ""
    """A file with the web identity token for `roleARN`."""
    address: str = ""
    """A URL in place of that of the region, e.g. of a VPC endpoint."""

    def check(self, report: Report) -> None:
        _check_address(report, self.address)
        if report.is_broken("roleARN") or report.is_broken("tokenFile"):
            return
        if self.token_file and not self.role_arn:
            report.fault("tokenFile", message="needs roleARN", hint="the token is for that role")


class NewRelicProvider(PluginConfig):
    """New Relic."""

    account_id: int
    """The number of the account."""
    api_key_file: str = ""
    """A file with a user key."""
    api_key_data: Base64Secret = Base64Secret("")
    """The user key itself, as base64."""
    address: str = "https://api.newrelic.com"
    """The API; `https://api.eu.newrelic.com` for accounts in Europe."""

    def check(self, report: Report) -> None:
        _check_address(report, self.address)
        _check_pair(report, ("apiKeyFile", "apiKeyData"), (self.api_key_file, self.api_key_data))


class LokiProvider(PluginConfig):
    """Grafana Loki: log lines, and metrics made of them."""

    address: str
    """Its URL."""
    tenant: str = ""
    """Whose logs, where there are several."""
    username_file: str = ""
    """A file with the name for basic authentication."""
    password_file: str = ""
    """A file with the password for basic authentication; used when both files are given."""

    def check(self, report: Report) -> None:
        _check_address(report, self.address)


class HeaderFile(PluginConfig):
    """A header of every request, whose value may be a secret."""

    key: str
    """Its name."""
    value: str = ""
    """What it says."""
    value_file: str = ""
    """A file with what it says."""


class HttpProvider(PluginConfig):
    """Anything that answers a GET with numbers in JSON; a query is what follows the address."""

    address: str
    """Its URL."""
    headers: tuple[HeaderFile, ...] = ()
    """Sent with every request."""
    json_path: str = "$"
    """Where the numbers are, unless the metric says it."""

    def check(self, report: Report) -> None:
        _check_address(report, self.address)
        _check_path(report, self.json_path)


ProviderConfig: TypeAlias = (
    PrometheusProvider
    | DatadogProvider
    | StackdriverProvider
    | CloudWatchProvider
    | NewRelicProvider
    | LokiProvider
    | HttpProvider
)


class AnalysisProvider(PluginConfig):
    """A system that knows metrics or logs."""

    variants: ClassVar = {
        "PROMETHEUS": PrometheusProvider,
        "DATADOG": DatadogProvider,
        "STACKDRIVER": StackdriverProvider,
        "CLOUDWATCH": CloudWatchProvider,
        "NEW_RELIC": NewRelicProvider,
        "LOKI": LokiProvider,
        "HTTP": HttpProvider,
    }

    name: str
    """The name that stages call it by."""
    type: Literal["PROMETHEUS", "DATADOG", "STACKDRIVER", "CLOUDWATCH", "NEW_RELIC", "LOKI", "HTTP"]
    """What it is."""
    config: ProviderConfig
    """How it is reached."""

    @property
    def has_logs(self) -> bool:
        return self.type in {"STACKDRIVER", "LOKI"}

    @property
    def knows_past(self) -> bool:
        return self.type != "HTTP"


class AnalysisPluginConfig(PluginConfig):
    """The options of the plugin."""

    analysis_providers: tuple[AnalysisProvider, ...] = ()
    """The systems that stages may ask."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts and networks (`10.0.0.0/8`) that checks and endpoints of applications may name although
    they are not on the internet. A host is named as it is: `*.example.com` opens none of them."""

    def check(self, report: Report) -> None:
        names = [each.name for each in self.analysis_providers]
        for index, name in enumerate(names):
            if name and names.index(name) != index:
                report.fault(
                    "analysisProviders", index, "name", message=f"{name!r} is used already"
                )

    def find_provider(self, name: str) -> AnalysisProvider | None:
        return next((each for each in self.analysis_providers if each.name == name), None)


class AnalysisApplicationConfig(ApplicationConfig):
    """The options of an application."""

    app_custom_args: dict[str, str] = field(default_factory=dict)
    """What queries know as `.AppCustomArgs`."""


class TemplateReferenceConfig(StageConfig):
    """A template to be used in place of what is written here."""

    moved: ClassVar = {"args": "use appArgs"}

    name: str
    """Its name in the AnalysisTemplate file of the repository."""
    app_args: dict[str, str] = field(default_factory=dict)
    """What its query knows as `.AppCustomArgs`, over those of the application."""


class StageMetricConfig(MetricConfig):
    """A metric of a stage, or the name of a template."""

    template: TemplateReferenceConfig | None = None
    """A template to be used in place of what is written here."""


class StageLogConfig(LogConfig):
    """Logs of a stage, or the name of a template."""

    template: TemplateReferenceConfig | None = None
    """A template to be used in place of what is written here."""


class StageHttpConfig(HttpConfig):
    """A request of a stage, or the name of a template."""

    template: TemplateReferenceConfig | None = None
    """A template to be used in place of what is written here."""


class AnalysisOptions(StageConfig):
    """The options of ANALYSIS."""

    constraints: ClassVar = (
        InRange(key="duration", minimum=0, message="must be positive: {value}"),
    )

    duration: Duration
    """How long it looks."""
    restart_threshold: int = 0
    """Kept for older files; not used."""
    metrics: tuple[StageMetricConfig, ...] = ()
    """Numbers of monitoring systems."""
    logs: tuple[StageLogConfig, ...] = ()
    """Log lines that there should be none of."""
    https: tuple[StageHttpConfig, ...] = ()
    """Addresses that should answer."""

    def check(self, report: Report) -> None:
        if any(report.is_broken(key) for key in ("duration", "metrics", "logs", "https")):
            return
        if self.restart_threshold:
            report.warn("restartThreshold", message="has no effect")
        items = [*self.list_items()]
        if not items:
            report.warn("metrics", message="nothing is looked at: the stage only waits")
        if len(items) > MOST_ANALYZERS:
            report.fault(
                "metrics", message=f"{len(items)} analyses are too many", hint=f"{MOST_ANALYZERS}"
            )
        for key, index, item in items:
            if item.template is None:
                for path, message, hint in find_item_faults(item, self.duration):
                    report.fault(key, index, path, message=message, hint=hint)

    def list_items(
        self,
    ) -> Iterator[tuple[str, int, StageMetricConfig | StageLogConfig | StageHttpConfig]]:
        """Yields everything that is looked at: the key of its list, its place there, and itself."""
        lists: Sequence[
            tuple[str, Sequence[StageMetricConfig | StageLogConfig | StageHttpConfig]]
        ] = (("metrics", self.metrics), ("logs", self.logs), ("https", self.https))
        for key, items in lists:
            for index, item in enumerate(items):
                yield key, index, item


def find_item_faults(
    item: MetricConfig | LogConfig | HttpConfig, duration: Duration
) -> Iterator[tuple[str, str, str]]:
    """Yields what is wrong with something that is looked at: key, sentence and hint."""
    if item.interval > duration:
        yield (
            "interval",
            f"{item.interval} is longer than the duration of the stage, {duration}",
            "it would end before its first look; take a shorter interval or a longer duration",
        )
    if isinstance(item, MetricConfig) and item.strategy == "PREVIOUS" and item.url:
        yield "strategy", NO_PAST, "name a provider that keeps what was, such as PROMETHEUS"
    if isinstance(item, MetricConfig) and item.json_path:
        try:
            parse_path(item.json_path)
        except BadJsonPathError as error:
            yield "jsonPath", str(error), "e.g. $.data[*].value"
    if isinstance(item, HttpConfig) and item.expected_response_pattern:
        try:
            compile_regex(item.expected_response_pattern)
        except BadRegexError as error:
            yield "expectedResponsePattern", "not a regular expression", str(error)


def _check_path(report: Report, path: str) -> None:
    try:
        parse_path(path)
    except BadJsonPathError as error:
        report.fault("jsonPath", message=str(error), hint="e.g. $.data[*].value")
