# SPDX-License-Identifier: Apache-2.0
"""Brings the function itself ($LATEST) to a manifest: configuration, code, tags, concurrency.

The configuration comes before the code: a function whose code is being fetched refuses it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipecd_plugin_lambda.compare import normalise_configuration
from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.parameters import (
    APPLICATION,
    FunctionParameters,
    fit_configuration,
    fit_manifest,
    make_tags,
)
from pipecd_plugin_lambda.provider.functions import LiveFunction
from pipecd_plugin_lambda.provider.package import (
    build_package,
    download_package,
    hash_package,
)
from pipecd_plugin_lambda.stages.ledger import OptionNotes
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_plugin_lambda.stages.waiting import FunctionFailedError, wait_function
from pipecd_plugin_lambda.traffic import Traffic
from pipecd_sdk import StageFailedError


async def bring_function(
    run: FunctionRun,
    manifest: FunctionManifest,
    *,
    previous: FunctionManifest | None,
    live: LiveFunction | None,
) -> str:
    """Makes the function, or updates it; returns the hash of its code when it is ready.

    `previous` is what git had for it before: what only that has is taken back.
    """
    shape = await run.api.read_shape("CreateFunction")
    parameters = fit_manifest(manifest, shape)
    for field in parameters.unknown:
        run.log.info("AWS Lambda has no field %r: it is left out", field)
    code = await read_code(run, manifest)
    if live is None:
        await _create(run, manifest, parameters, code)
    else:
        had = fit_manifest(previous, shape) if previous is not None else None
        await update_configuration(run, parameters, had)
        await update_code(run, parameters, code, live.code_hash)
    configuration = await wait_function(run)
    if live is not None:
        await update_tags(run, manifest, previous, live)
    await set_reserved(run, manifest, previous)
    return str(configuration.get("CodeSha256", ""))


async def read_code(run: FunctionRun, manifest: FunctionManifest) -> dict[str, Any]:
    """Returns where the code of a manifest is, as the API takes it. Raises StageFailedError."""
    if manifest.image:
        return {"ImageUri": manifest.image}
    if manifest.s3:
        return dict(manifest.s3)
    source = manifest.source
    if source is None:
        raise StageFailedError("the function has no code", hint="give image, s3Bucket or source")
    run.log.info("building the package of %s at %s", source.path or "the repository", source.ref)
    package, commit = await build_package(source, run.hosts)
    run.log.info("the package of commit %s has %d bytes", commit[:7], len(package))
    return {"ZipFile": package}


async def _create(
    run: FunctionRun,
    manifest: FunctionManifest,
    parameters: FunctionParameters,
    code: Mapping[str, Any],
) -> None:
    run.log.info("creating the function %s", manifest.name)
    created = {k: v for k, v in parameters.created.items() if k != "FunctionName"}
    await run.ledger.note_begun()
    await run.api.create({**created, "Code": code, "Tags": _make_tags(run, manifest)})


async def update_configuration(
    run: FunctionRun,
    parameters: FunctionParameters,
    had: FunctionParameters | None,
    ran: LiveFunction | None = None,
) -> None:
    """Sets the configuration, when the function is ready for it, and waits until it is done."""
    await wait_function_settled(run)
    shape = await run.api.read_shape("UpdateFunctionConfiguration")
    run.log.info("updating the configuration of %s", run.api.name)
    kept = fit_configuration(normalise_configuration(ran), shape) if ran is not None else {}
    await run.ledger.note_begun()
    await run.api.update_configuration(parameters.for_update(shape, had, kept))
    await wait_function(run)


async def wait_function_settled(run: FunctionRun) -> None:
    """Waits until nothing is under way, also when what was under way has failed."""
    try:
        await wait_function(run)
    except FunctionFailedError as error:
        run.log.info("before this change: %s", error)


async def update_code(
    run: FunctionRun, parameters: FunctionParameters, code: Mapping[str, Any], there: str
) -> None:
    """Sets the code; a package that is there already is not sent again."""
    if "ZipFile" in code and hash_package(code["ZipFile"]) == there:
        run.log.info("the code has not changed")
        return
    run.log.info("updating the code of %s", run.api.name)
    await run.api.update_code({**code, **parameters.architectures})


def _make_tags(run: FunctionRun, manifest: FunctionManifest) -> dict[str, str]:
    return make_tags(
        manifest,
        piped_id=run.ctx.deployment.piped_id,
        application_id=run.ctx.deployment.application_id,
    )


async def update_tags(
    run: FunctionRun,
    manifest: FunctionManifest,
    previous: FunctionManifest | None,
    live: LiveFunction,
) -> None:
    """Sets the tags of git and our own; removes those that git had before. Others stay."""
    wanted = _make_tags(run, manifest)
    owner = live.tags.get(APPLICATION)
    if owner and owner != wanted[APPLICATION]:
        run.log.info("the function was that of the application %s: it is taken over", owner)
    changed = {key: value for key, value in wanted.items() if live.tags.get(key) != value}
    gone = {key for key in (previous.tags if previous else ()) if key in live.tags} - wanted.keys()
    if gone:
        await run.api.remove_tags(live.arn, gone)
    if changed:
        await run.api.set_tags(live.arn, changed)


async def set_reserved(
    run: FunctionRun,
    manifest: FunctionManifest | None,
    previous: FunctionManifest | None,
    before: OptionNotes | None = None,
) -> None:
    """Brings the reserved concurrency to a manifest, None if none has it.

    What only `previous` has is taken back: to what was there `before` it, or to nothing.
    """
    reserved = manifest.reserved if manifest is not None else None
    if reserved is None and before is not None:
        reserved = before.reserved
    if reserved is not None:
        await run.api.call("PutFunctionConcurrency", {"ReservedConcurrentExecutions": reserved})
    elif previous is not None and previous.reserved is not None:
        await run.api.find("DeleteFunctionConcurrency")


async def restore_function(
    run: FunctionRun,
    manifest: FunctionManifest,
    *,
    traffic: Traffic | None,
    options: OptionNotes,
    live: LiveFunction,
) -> None:
    """Brings the function back to the commit that ran before, its code to that of its version.

    `traffic` is that of its alias, which leads to the version; None where there was no alias.

    The place that git names may have other code by now: an object in S3 that was replaced, a tag
    or a branch that has moved. What the version has is the code that ran.
    """
    shape = await run.api.read_shape("CreateFunction")
    parameters = fit_manifest(manifest, shape)
    ran = await run.api.get(traffic.primary.version) if traffic is not None else None
    await update_configuration(run, parameters, fit_manifest(run.manifest, shape), ran)
    for code in [] if ran is None else await _list_exact_code(run, manifest, ran, live):
        if await _try_code(run, parameters, code) == (ran.code_hash if ran else ""):
            break
    else:
        if ran is None or ran.code_hash != live.code_hash:
            await _restore_from_git(run, manifest, parameters, live, ran)
    await wait_function(run)
    await update_tags(run, manifest, run.manifest, live)
    await set_reserved(run, manifest, run.manifest, options)


async def _list_exact_code(
    run: FunctionRun, manifest: FunctionManifest, ran: LiveFunction, live: LiveFunction
) -> list[dict[str, Any]]:
    """Returns what may have the code of the version that ran, the nicest first."""
    if ran.code_hash == live.code_hash and manifest.image == run.manifest.image:
        return []
    if manifest.image:
        resolved = str(ran.code.get("ResolvedImageUri") or "")
        return [{"ImageUri": each} for each in dict.fromkeys((manifest.image, resolved)) if each]
    package = await download_package(
        ran, is_http_allowed=bool(getattr(run.target.config, "endpoint_url", ""))
    )
    return [{"ZipFile": package}] if package is not None else []


async def _try_code(
    run: FunctionRun, parameters: FunctionParameters, code: Mapping[str, Any]
) -> str:
    run.log.info("restoring the code of %s", run.api.name)
    await run.api.update_code({**code, **parameters.architectures})
    return str((await wait_function(run)).get("CodeSha256", ""))


async def _restore_from_git(
    run: FunctionRun,
    manifest: FunctionManifest,
    parameters: FunctionParameters,
    live: LiveFunction,
    ran: LiveFunction | None,
) -> None:
    back = replace(run, manifest=manifest)
    await update_code(back, parameters, await read_code(back, manifest), live.code_hash)
    found = str((await wait_function(run)).get("CodeSha256", ""))
    if ran is not None and found != ran.code_hash:
        run.log.info(
            "$LATEST has the code that git names now, which is not that of the version that ran;"
            " callers of the alias get the version"
        )
