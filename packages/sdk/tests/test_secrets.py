# SPDX-License-Identifier: Apache-2.0
"""Secrets that a stage names: opened one by one, shown never."""

import json

import pytest

from pipecd_sdk import (
    Secrets,
    StageConfig,
    StageContext,
    StageFailedError,
    StagePlugin,
    field,
    stage,
)
from pipecd_sdk._planning import StageRequest, plan_pipeline
from pipecd_sdk.config import OptionFaultsError
from pipecd_sdk.secrets import refuse

VALUES = {"login": "hunter22", "odd": "a 'b' $(c)"}


class Vault:
    """Opens what it has, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def open(self, name: str) -> str:
        self.asked.append(name)
        if name not in VALUES:
            raise StageFailedError(f"there is no secret {name!r}")
        return VALUES[name]


async def test_only_what_is_named_is_opened() -> None:
    vault = Vault()
    secrets = Secrets(vault.open)

    plain = await secrets.expand_command("docker inspect -f '{{.Id}}'")
    named = await secrets.expand_command("login {{ .encryptedSecrets.login }}")

    assert plain.text == "docker inspect -f '{{.Id}}'"
    assert named.text == "login hunter22"
    assert vault.asked == ["login"]


async def test_what_is_opened_shows_as_it_was_written() -> None:
    opened = await Secrets(Vault().open).expand_variable("<{{ .encryptedSecrets.odd }}>")

    assert opened.text == "<a 'b' $(c)>"
    assert str(opened) == "<{{ .encryptedSecrets.odd }}>"
    assert "$(c)" not in repr(opened)


async def test_a_value_that_a_shell_would_read_fails_the_stage() -> None:
    with pytest.raises(StageFailedError) as raised:
        await Secrets(Vault().open).expand_command("echo {{ .encryptedSecrets.odd }}")

    assert "set a variable under env" in raised.value.reason()
    assert "$(c)" not in raised.value.reason()


async def test_without_an_agent_that_opens_them_the_stage_fails() -> None:
    with pytest.raises(StageFailedError, match="this agent opens no secrets"):
        await Secrets(refuse).open("login")


class Options(StageConfig):
    text: str = ""
    env: dict[str, str] = field(default_factory=dict)


class Echo(StagePlugin):
    @stage("ECHO")
    async def echo(self, ctx: StageContext, config: Options) -> None: ...


def request(**options: object) -> StageRequest:
    return StageRequest(name="ECHO", index=3, config=json.dumps(options).encode())


def test_an_agent_that_opens_none_is_refused_the_plan_of_stages_that_need_them() -> None:
    needs = request(env={"A": "{{ .encryptedSecrets.login }}"})

    assert plan_pipeline(Echo(), [needs], rollback=False)
    with pytest.raises(OptionFaultsError, match=r"stages\[3\]\.with\.env\.A: this agent opens no"):
        plan_pipeline(Echo(), [needs], rollback=False, opens_secrets=False)


def test_other_stages_are_planned_there_as_well() -> None:
    plain = request(text="{{ .Id }}")

    assert plan_pipeline(Echo(), [plain], rollback=False, opens_secrets=False)
