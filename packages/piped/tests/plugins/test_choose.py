# SPDX-License-Identifier: Apache-2.0
"""Which plugin runs a stage (no process needed)."""

import pytest

from pipecd_model.errors import AmbiguousStageError, NoPluginForStageError, PluginError
from pipecd_piped.plugins.choose import choose
from pipecd_piped.plugins.plugin import Plugin
from pipecd_piped.plugins.state import Phase, PluginLimits


def plugin(name: str, *stages: str) -> Plugin:
    made = Plugin(name, PluginLimits(), lambda _: None)
    made.stages = frozenset(stages)
    made.was_ready = bool(stages)
    return made


def named(*plugins: Plugin) -> dict[str, Plugin]:
    return {each.name: each for each in plugins}


async def test_the_only_one_that_offers_a_stage_runs_it() -> None:
    plugins = named(plugin("wait", "WAIT"), plugin("script", "SCRIPT_RUN"))

    assert choose(plugins, "WAIT", wanted=None, declared=["script"]).name == "wait"


async def test_the_one_that_the_application_declares_goes_first() -> None:
    plugins = named(plugin("old", "K8S_SYNC"), plugin("new", "K8S_SYNC"))

    assert choose(plugins, "K8S_SYNC", wanted=None, declared=["new", "wait"]).name == "new"


async def test_the_one_that_the_stage_names_goes_before_all() -> None:
    plugins = named(plugin("old", "K8S_SYNC"), plugin("new", "K8S_SYNC"))

    assert choose(plugins, "K8S_SYNC", wanted="old", declared=["new"]).name == "old"


@pytest.mark.parametrize("declared", [[], ["b", "c"]])
async def test_two_candidates_are_named(declared: list[str]) -> None:
    plugins = named(plugin("b", "K8S_SYNC"), plugin("c", "K8S_SYNC"))

    with pytest.raises(AmbiguousStageError, match="is offered by 'b', 'c'"):
        choose(plugins, "K8S_SYNC", wanted=None, declared=declared)


async def test_a_misspelt_stage_gets_a_hint() -> None:
    with pytest.raises(NoPluginForStageError) as raised:
        choose(named(plugin("wait", "WAIT")), "WIAT", wanted=None, declared=[])

    assert raised.value.hint == "did you mean 'WAIT'?"


async def test_a_plugin_that_never_started_is_the_likelier_reason() -> None:
    broken = plugin("wait")
    broken.become(Phase.FAILED, "exited with code 3 before it was ready")

    with pytest.raises(NoPluginForStageError) as raised:
        choose(named(broken), "WAIT", wanted=None, declared=[])

    assert raised.value.hint == (
        "the plugin 'wait' is not ready: exited with code 3 before it was ready"
    )


async def test_a_plugin_that_is_not_configured_cannot_be_wanted() -> None:
    with pytest.raises(PluginError, match="there is no plugin 'other' for the stage 'WAIT'"):
        choose(named(plugin("wait", "WAIT")), "WAIT", wanted="other", declared=[])


async def test_a_plugin_that_does_not_offer_the_stage_cannot_be_wanted() -> None:
    with pytest.raises(PluginError, match="'wait' does not offer the stage 'SCRIPT_RUN'"):
        choose(named(plugin("wait", "WAIT")), "SCRIPT_RUN", wanted="wait", declared=[])


async def test_a_wanted_plugin_is_chosen_also_before_it_has_started() -> None:
    """A resumed stage waits for its plugin, it does not fail because piped has just started."""
    assert choose(named(plugin("wait")), "WAIT", wanted="wait", declared=[]).name == "wait"
