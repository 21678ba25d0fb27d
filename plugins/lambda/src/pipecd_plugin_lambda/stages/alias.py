# SPDX-License-Identifier: Apache-2.0
"""The alias that callers use: its traffic, its URL, and what is kept ready behind it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pipecd_aws import AwsError
from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.parameters import fit_url
from pipecd_plugin_lambda.provider.functions import CONFLICT
from pipecd_plugin_lambda.stages.ledger import OptionNotes
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_plugin_lambda.stages.waiting import wait_provisioned
from pipecd_plugin_lambda.traffic import Traffic, send_all, shift

_URL_RESETS: Final[Mapping[str, Any]] = MappingProxyType({"Cors": {}, "InvokeMode": "BUFFERED"})
"""What AWS gives a URL that is made without the option; an update without it changes nothing."""


async def route(run: FunctionRun, version: str, percent: float) -> None:
    """Gives a version its share of the traffic; the alias is made when there is none."""
    traffic = await run.api.get_alias(run.alias)
    if traffic is None and not percent:
        run.log.info("there is no alias %s, and version %s gets no traffic", run.alias, version)
        return
    if traffic is None:
        if percent < 100:
            run.log.info(
                "there was no alias %s, and so no version to share with: version %s gets all",
                run.alias,
                version,
            )
        await set_traffic(run, send_all(version), before=None)
        return
    await set_traffic(run, shift(traffic, version, percent), before=traffic)


async def set_traffic(run: FunctionRun, wanted: Traffic, *, before: Traffic | None) -> None:
    """Sets the traffic of the alias, unless it is split like that already."""
    if wanted.is_same(before):
        run.log.info("%s has it already: %s", run.alias, wanted)
        return
    await run.api.put_alias(run.alias, wanted, exists=before is not None)
    run.log.success("%s: %s", run.alias, wanted)


async def set_alias_options(
    run: FunctionRun,
    manifest: FunctionManifest | None,
    previous: FunctionManifest | None,
    before: OptionNotes | None = None,
) -> None:
    """Brings URL and provisioned concurrency of the alias to a manifest, None if none has it.

    What only `previous` has is taken back: to what was there `before` it, or to nothing.
    """
    before = before or OptionNotes()
    await _set_url(run, manifest, previous, before.url)
    await _set_provisioned(run, manifest, previous, before.provisioned)


async def _set_url(
    run: FunctionRun,
    manifest: FunctionManifest | None,
    previous: FunctionManifest | None,
    before: Mapping[str, Any] | None,
) -> None:
    had = previous.url if previous is not None else None
    shape = await run.api.read_shape("CreateFunctionUrlConfig")
    wanted = before
    if manifest is not None and manifest.url is not None:
        wanted = fit_url(manifest, shape)
    if wanted is not None:
        taken = fit_url(previous, shape) if previous is not None and had is not None else {}
        resets = {**_URL_RESETS, **(before or {})}
        back = {key: resets[key] for key in taken if key in _URL_RESETS}
        await _put_url(run, {**back, **wanted})
    elif had is not None:
        run.log.info("removing the URL of %s", run.alias)
        await run.api.find("DeleteFunctionUrlConfig", {"Qualifier": run.alias})


async def _put_url(run: FunctionRun, options: Mapping[str, Any]) -> None:
    parameters = {**options, "Qualifier": run.alias}
    live = await run.api.get_url(run.alias)
    if live is None:
        try:
            live = await run.api.call("CreateFunctionUrlConfig", parameters)
        except AwsError as error:
            if error.code != CONFLICT:
                raise
    if live is not None and any((live.get(k) or None) != (v or None) for k, v in options.items()):
        live = await run.api.call("UpdateFunctionUrlConfig", parameters)
    if live is not None:
        run.log.info("%s is called at %s", run.alias, live.get("FunctionUrl", "its URL"))


async def _set_provisioned(
    run: FunctionRun,
    manifest: FunctionManifest | None,
    previous: FunctionManifest | None,
    before: int,
) -> None:
    qualifier = {"Qualifier": run.alias}
    wanted = (manifest.provisioned if manifest is not None else 0) or before
    if not wanted:
        if previous is not None and previous.provisioned:
            run.log.info("removing the provisioned concurrency of %s", run.alias)
            await run.api.find("DeleteProvisionedConcurrencyConfig", qualifier)
        return
    live = await run.api.get_provisioned(run.alias) or {}
    if live.get("RequestedProvisionedConcurrentExecutions") != wanted:
        run.log.info("keeping %d ready behind %s", wanted, run.alias)
        await run.api.call(
            "PutProvisionedConcurrencyConfig",
            {**qualifier, "ProvisionedConcurrentExecutions": wanted},
        )
    await wait_provisioned(run, wanted)
