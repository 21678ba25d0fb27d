# SPDX-License-Identifier: Apache-2.0
"""ANALYSIS: look at metrics, logs and addresses for some time, and fail when they are wrong."""

from collections.abc import Iterable, Sequence

from pipecd_plugin_analysis.config import (
    NO_PAST,
    AnalysisApplicationConfig,
    AnalysisOptions,
    AnalysisPluginConfig,
    StageLogConfig,
    StageMetricConfig,
)
from pipecd_plugin_analysis.run import AnalysisRun
from pipecd_sdk import (
    Fault,
    Operation,
    Outcome,
    PlannedStage,
    RequestedStage,
    StageContext,
    StagePlugin,
    serve,
    stage,
)


class Analysis(StagePlugin):
    """Looks before a pipeline goes on."""

    config: AnalysisPluginConfig
    application_config = AnalysisApplicationConfig

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        for each in requested:
            yield each.to_planned(operation=Operation.SKIP)

    def find_faults(self, requested: RequestedStage) -> Iterable[Fault]:
        options: AnalysisOptions = requested.config
        for key, index, item in options.list_items():
            if not isinstance(item, StageMetricConfig | StageLogConfig) or not item.provider:
                continue
            if item.template is not None:
                continue  # it is used in place of all that is written beside it
            path = f"{key}[{index}].provider"
            provider = self.config.find_provider(item.provider)
            if provider is None:
                names = ", ".join(each.name for each in self.config.analysis_providers)
                yield Fault(
                    path=path,
                    message=f"the piped has no analysis provider {item.provider!r}",
                    hint=f"it has {names}" if names else "it has none",
                )
            elif (
                isinstance(item, StageMetricConfig)
                and item.strategy == "PREVIOUS"
                and not provider.knows_past
            ):
                yield Fault(
                    path=f"{key}[{index}].strategy",
                    message=NO_PAST,
                    hint="name a provider that keeps what was, such as PROMETHEUS",
                )
            elif isinstance(item, StageLogConfig) and not provider.has_logs:
                yield Fault(
                    path=path,
                    message=f"the provider {item.provider!r} has no logs",
                    hint="those of LOKI and STACKDRIVER have",
                )

    @stage("ANALYSIS")
    async def analyse(self, ctx: StageContext, options: AnalysisOptions) -> Outcome | None:
        return await AnalysisRun(ctx, options, self.config).run()


def main() -> None:
    """Runs the executable `pipecd-plugin-analysis`."""
    serve(Analysis())


if __name__ == "__main__":
    main()
