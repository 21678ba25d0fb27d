# SPDX-License-Identifier: Apache-2.0
"""Applications that the config selects are registered; nothing else is, and refusals are told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipecd_model.config import (
    ApplicationConfig,
    AutoRegistrationConfig,
    DeployTargetConfig,
    PluginConfig,
    load_application,
)
from pipecd_model.errors import UnavailableError
from pipecd_piped.appconfig import registration
from pipecd_piped.appconfig.registration import (
    NoTargetError,
    Registrar,
    Unregistered,
    build_found,
    is_selected,
)
from pipecd_piped.controlplane.client import UnknownRpcError
from pipecd_wire.model.common_pb2 import ApplicationInfo
from pipecd_wire.pipecd.push import push_pb2 as pb

LIMIT_SECONDS = 30.0
Outcome = pb.RegistrationOutcome
EVERYTHING = AutoRegistrationConfig(paths=("**",))


def read(spec: str = "", kind: str = "Application") -> ApplicationConfig:
    text = f"apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n  name: web\n{spec}"
    return load_application(text, file="app.pipecd.yaml").config


def found(
    name: str = "web", *, repository: str = "repo", spec: str = "", **more: Any
) -> Unregistered:
    config = read(spec, **more)
    path = f"apps/{name}"
    info = ApplicationInfo(
        name=name,
        repo_id=repository,
        path=path,
        config_filename="app.pipecd.yaml",
        piped_id="piped",
        labels=config.labels,
    )
    return Unregistered(info=info, file=f"{path}/app.pipecd.yaml", config=config)


class Desk:
    """A control plane that answers as the test says, and remembers what it was asked."""

    def __init__(self, answer: Callable[[pb.FoundApplication], Outcome]) -> None:
        self.answer = answer
        self.errors: list[Exception] = []
        self.asked: asyncio.Queue[list[str]] = asyncio.Queue()

    async def register(
        self, request: pb.RegisterApplicationsRequest
    ) -> pb.RegisterApplicationsResponse:
        self.asked.put_nowait([each.name for each in request.applications])
        if self.errors:
            raise self.errors.pop(0)
        return pb.RegisterApplicationsResponse(
            outcomes=[self.answer(each) for each in request.applications]
        )

    async def wait_asked(self) -> list[str]:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.asked.get()


def accept(application: pb.FoundApplication) -> Outcome:
    return Outcome(kind=Outcome.REGISTERED, application_id=f"id of {application.name}")


def list_events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the module that is tested, in their order."""
    return [each.message for each in caplog.records if each.name == registration.__name__]


@asynccontextmanager
async def running(
    desk: Desk, config: AutoRegistrationConfig = EVERYTHING, plugins: tuple[PluginConfig, ...] = ()
) -> AsyncIterator[Registrar]:
    registrar = Registrar(config, plugins, desk.register)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(registrar.run())
        yield registrar
        task.cancel()


@pytest.mark.parametrize(
    ("config", "selected"),
    [
        ({"labels": {"team": "a"}}, True),
        ({"labels": {"team": "b"}}, False),
        ({"labels": {"team": "a", "tier": "1"}}, False),
        ({"repositories": ("repo",)}, True),
        ({"repositories": ("other",)}, False),
        ({"paths": ("apps/**",)}, True),
        ({"paths": ("apps/web",)}, True),
        ({"paths": ("apps/api",)}, False),
        ({"paths": ("**", "!apps/web/**")}, False),
        ({"labels": {"team": "a"}, "paths": ("apps/*",), "repositories": ("repo",)}, True),
        ({"labels": {"team": "a"}, "paths": ("other/*",)}, False),
    ],
)
def test_a_file_is_selected_when_all_that_is_given_matches(
    config: Mapping[str, Any], selected: bool
) -> None:
    file = found(spec="  labels: {team: a}\n")

    assert is_selected(AutoRegistrationConfig(**config), file) is selected


def test_older_kinds_are_left_to_people() -> None:
    """They are deployed by a provider, which no file names."""
    assert not is_selected(EVERYTHING, found(kind="KubernetesApp"))


TARGETS = {"one": ["only"], "two": ["blue", "green"], "none": []}


@pytest.mark.parametrize(
    ("spec", "targets"),
    [
        ("", {}),
        ("  plugins: {one: {}}\n", {"one": ["only"]}),
        ("  plugins: {none: {}}\n", {}),
        ("  plugins: {two: {}}\n  deployTargets: {two: [green]}\n", {"two": ["green"]}),
        (
            "  plugins: {one: {}, two: {}}\n  deployTargets: {two: [green, blue]}\n",
            {"one": ["only"], "two": ["green", "blue"]},
        ),
        ("  deployTargets: {one: [only]}\n", {"one": ["only"]}),
    ],
)
def test_targets_are_the_files_own_or_the_only_ones(
    spec: str, targets: Mapping[str, list[str]]
) -> None:
    made = build_found(found(spec=spec), TARGETS)

    chosen = {
        name: list(each.deploy_targets) for name, each in made.deploy_targets_by_plugin.items()
    }
    assert chosen == targets


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("  plugins: {two: {}}\n", "the plugin 'two' has 2 deploy targets"),
        ("  plugins: {other: {}}\n", "this piped has no plugin 'other'"),
        ("  deployTargets: {other: [a]}\n", "this piped has no plugin 'other'"),
    ],
)
def test_a_file_whose_targets_cannot_be_told_is_not_registered(spec: str, sentence: str) -> None:
    with pytest.raises(NoTargetError, match=sentence):
        build_found(found(spec=spec), TARGETS)


async def test_what_is_selected_is_registered_in_portions() -> None:
    desk = Desk(accept)
    config = AutoRegistrationConfig(paths=("**",), limit=1000)
    async with running(desk, config) as registrar:
        names = [f"a{number:03}" for number in range(registration.AT_ONCE + 20)]
        registrar.offer([found(name) for name in names], registered=0)

        first, second = await desk.wait_asked(), await desk.wait_asked()

    assert len(first) == registration.AT_ONCE
    assert first + second == names


async def test_no_more_than_the_limit_is_registered(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(accept)
    config = AutoRegistrationConfig(paths=("**",), limit=5)
    async with running(desk, config) as registrar:
        registrar.offer([found(f"a{number}") for number in range(4)], registered=3)

        assert await desk.wait_asked() == ["a0", "a1"]
    assert "application.too_many_found" in list_events(caplog)


async def test_a_request_that_fails_is_repeated() -> None:
    desk = Desk(accept)
    desk.errors = [UnavailableError("the control plane does not answer")]
    async with running(desk) as registrar:
        registrar.offer([found("a")], registered=0)

        assert [await desk.wait_asked(), await desk.wait_asked()] == [["a"], ["a"]]


async def test_a_control_plane_that_cannot_is_asked_once() -> None:
    desk = Desk(accept)
    desk.errors = [UnknownRpcError("the control plane does not know it")]
    registrar = Registrar(EVERYTHING, (), desk.register)
    registrar.offer([found("a")], registered=0)

    async with asyncio.timeout(LIMIT_SECONDS):
        await registrar.run()

    assert await desk.wait_asked() == ["a"]
    assert desk.asked.empty()


async def test_a_refusal_is_told_once_and_asked_for_again_when_something_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = Outcome(kind=Outcome.NAME_TAKEN, sentence="the name is taken")
    desk = Desk(lambda _: refusal)
    caplog.set_level("INFO")
    async with running(desk) as registrar:
        for _ in range(3):
            registrar.offer([found("a")], registered=0)
            assert await desk.wait_asked() == ["a"]
        desk.answer = accept
        registrar.offer([found("a")], registered=0)
        await desk.wait_asked()
        registrar.offer([found("a")], registered=0)
        await desk.wait_asked()  # what it was told of the one before is logged by now

    assert list_events(caplog) == ["application.not_registered", "application.registered"]


async def test_a_plugin_with_several_targets_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    plugin = PluginConfig(
        name="two",
        url="package://two",
        deploy_targets=(DeployTargetConfig(name="a"), DeployTargetConfig(name="b")),
    )
    registrar = Registrar(EVERYTHING, [plugin], Desk(accept).register)

    for _ in range(3):
        registrar.offer([found(spec="  plugins: {two: {}}\n")], registered=0)

    assert list_events(caplog) == ["application.not_registered"]
    assert "deployTargets: {two: [a]}" in str(vars(caplog.records[0])["fields"])
