# SPDX-License-Identifier: Apache-2.0
"""Chooses the plugin that runs a stage, when several may offer a stage of the same name."""

from collections.abc import Collection, Mapping

from pipecd_model.errors import AmbiguousStageError, NoPluginForStageError, PluginError
from pipecd_piped.plugins.plugin import Plugin


def choose(
    plugins: Mapping[str, Plugin], stage: str, *, wanted: str | None, declared: Collection[str]
) -> Plugin:
    """Returns the plugin of a stage. Raises PluginError.

    `wanted` is the plugin that the stage names, or that was chosen before; `declared` are those
    that the application names, in `spec.plugins` or by its deploy targets. The plugin may not be
    ready: the caller has to wait for that.
    """
    if wanted:
        return _find_named(plugins, stage, wanted)
    offering = {name: plugin for name, plugin in plugins.items() if stage in plugin.stages}
    if len(offering) > 1 and (named := offering.keys() & set(declared)):
        offering = {name: offering[name] for name in named}
    if len(offering) > 1:
        raise AmbiguousStageError(stage, plugins=offering.keys())
    if not offering:
        raise _no_plugin_error(plugins, stage)
    return next(iter(offering.values()))


def _find_named(plugins: Mapping[str, Plugin], stage: str, wanted: str) -> Plugin:
    plugin = plugins.get(wanted)
    if plugin is None:
        raise PluginError(
            f"there is no plugin {wanted!r} for the stage {stage!r}",
            hint=f"this piped has {', '.join(sorted(plugins)) or 'none'}",
            stage=stage,
        )
    if plugin.was_ready and stage not in plugin.stages:
        raise PluginError(
            f"the plugin {wanted!r} does not offer the stage {stage!r}",
            hint=f"it offers {', '.join(sorted(plugin.stages)) or 'none'}",
            stage=stage,
        )
    return plugin


def _no_plugin_error(plugins: Mapping[str, Plugin], stage: str) -> NoPluginForStageError:
    error = NoPluginForStageError(
        stage, offered={name for plugin in plugins.values() for name in plugin.stages}
    )
    unknown = [plugin for plugin in plugins.values() if not plugin.was_ready]
    if unknown:
        # A plugin that is not ready is a likelier reason than a misspelt stage.
        error.hint = "; ".join(
            f"the plugin {plugin.name!r} is not ready: {plugin.state.sentence}"
            for plugin in unknown
        )
    return error
