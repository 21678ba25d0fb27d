# SPDX-License-Identifier: Apache-2.0
"""Which methods are stages, and which mistakes are told at once."""

import pytest

from pipecd_sdk import (
    DeploymentPlugin,
    PluginConfig,
    StageConfig,
    StageContext,
    StageDefinitionError,
    StagePlugin,
    stage,
)


class Options(StageConfig):
    count: int = 1


class Base(StagePlugin):
    @stage("FIRST", desc="The first", needs_files=False)
    async def first(self, ctx: StageContext, options: Options) -> None: ...

    @stage("SECOND", finishes_on_stop=True)
    async def second(self, ctx: StageContext) -> None: ...


def test_stages_are_found_in_the_order_they_are_written() -> None:
    assert list(Base().stages) == ["FIRST", "SECOND"]


def test_the_type_of_the_options_is_the_annotation() -> None:
    first, second = Base().stages.values()

    assert first.config is Options
    assert second.config is None
    assert (first.desc, first.needs_files, first.finishes_on_stop) == ("The first", False, False)
    assert (second.needs_files, second.finishes_on_stop) == (True, True)


def test_a_subclass_may_replace_a_stage() -> None:
    class Better(Base):
        @stage("FIRST")
        async def first(self, ctx: StageContext, options: Options) -> None: ...

    assert Better().stages["FIRST"].desc == ""
    assert set(Better().stages) == {"FIRST", "SECOND"}


def test_two_methods_for_one_stage_are_refused() -> None:
    class Twice(Base):
        @stage("FIRST")
        async def another(self, ctx: StageContext) -> None: ...

    with pytest.raises(StageDefinitionError, match="first and another are both FIRST"):
        _ = Twice().stages


def test_a_plugin_without_stages_is_refused() -> None:
    class Empty(StagePlugin): ...

    with pytest.raises(StageDefinitionError, match="Empty has no method marked with @stage"):
        _ = Empty().stages


def test_a_handler_must_be_async() -> None:
    class Plain(StagePlugin):
        @stage("PLAIN")  # type: ignore[type-var]  # what is tested
        def plain(self, ctx: StageContext) -> None: ...

    with pytest.raises(StageDefinitionError, match="must be an async function"):
        _ = Plain().stages


def test_a_handler_must_take_the_context() -> None:
    class Blind(StagePlugin):
        @stage("BLIND")
        async def blind(self) -> None: ...

    with pytest.raises(StageDefinitionError, match="must take ctx: StageContext"):
        _ = Blind().stages


def test_options_must_be_a_stage_config() -> None:
    class Loose(StagePlugin):
        @stage("LOOSE")
        async def loose(self, ctx: StageContext, options: dict[str, str]) -> None: ...

    with pytest.raises(StageDefinitionError, match="annotate options with a StageConfig"):
        _ = Loose().stages


def test_the_options_of_a_plugin_must_be_a_plugin_config() -> None:
    class Right(Base):
        config: PluginConfig

    class Wrong(Base):
        config: dict[str, str]

    assert Base.config_type() is None
    assert Right.config_type() is PluginConfig
    with pytest.raises(StageDefinitionError, match="annotate config with a PluginConfig"):
        Wrong.config_type()


def test_only_one_rollback_stage_is_planned_by_itself() -> None:
    class Two(DeploymentPlugin):
        @stage("A_ROLLBACK", rollback=True)
        async def a(self, ctx: StageContext) -> None: ...

        @stage("B_ROLLBACK", rollback=True)
        async def b(self, ctx: StageContext) -> None: ...

    with pytest.raises(StageDefinitionError, match="more than one stage is marked rollback"):
        list(Two().quick_sync(rollback=True))
