# SPDX-License-Identifier: Apache-2.0
"""Which secrets are open, for whom, and for how long."""

import pytest

from pipecd_model.errors import ConfigError, PipecdError, StateError
from pipecd_piped.secrets import KnownSecrets, OpenedSecrets
from pipecd_piped.secrets.known import COMMITS, ENDED, KEPT
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.deployment_pb2 import Commit, Deployment, DeploymentTrigger


def place(path: str = "web") -> ApplicationGitPath:
    return ApplicationGitPath(repo=ApplicationGitRepository(id="repo"), path=path)


def deployment(name: str = "d1", path: str = "web", commit: str = "c1") -> Deployment:
    return Deployment(
        id=name, git_path=place(path), trigger=DeploymentTrigger(commit=Commit(hash=commit))
    )


def of(**values: str) -> OpenedSecrets:
    return OpenedSecrets(values=values)


def test_a_deployment_knows_the_secrets_of_its_commit() -> None:
    known = KnownSecrets()
    with known.opened(deployment()):
        known.learn(place(), "c0", of(login="the-old-one"))
        known.learn(place(), "c1", of(login="the-new-one"))

        assert known.value("d1", "login") == "the-new-one"
        assert known.mask_for("d1", "the-old-one, the-new-one") == "***, ***"


def test_a_secret_of_another_application_is_nobodys_business() -> None:
    known = KnownSecrets()
    with known.opened(deployment()), known.opened(deployment("d2", "other")):
        known.learn(place("other"), "c1", of(login="hunter22"))

        with pytest.raises(ConfigError, match="there is no secret 'login'"):
            known.value("d1", "login")
        assert known.mask_for("d1", "hunter22") == "hunter22"
        assert known.mask("hunter22") == "***"


def test_one_that_cannot_be_opened_says_why() -> None:
    known = KnownSecrets()
    problem = ConfigError("it was closed for another key", hint="close it again")
    with known.opened(deployment()):
        known.learn(place(), "c1", OpenedSecrets(problems={"login": problem}))

        with pytest.raises(StateError, match="closed for another key") as raised:
            known.value("d1", "login")
        assert raised.value.hint == "close it again"


def test_the_end_of_a_deployment_is_told_after_it_and_masked_too() -> None:
    known = KnownSecrets()
    with known.opened(deployment()):
        known.learn(place(), "c1", of(login="hunter22"))

    assert known.mask_for("d1", "failed with hunter22") == "failed with ***"


def test_secrets_are_forgotten_when_others_have_come() -> None:
    known = KnownSecrets()
    with known.opened(deployment()):
        known.learn(place(), "c1", of(login="hunter22"))
    for number in range(KEPT):
        with known.opened(deployment(f"other-{number}", f"app-{number}")):
            pass

    assert known.mask_for("d1", "hunter22") == "hunter22"
    with pytest.raises(PipecdError):
        known.value("d1", "login")


def test_an_application_that_is_deployed_for_years_does_not_fill_the_memory() -> None:
    known = KnownSecrets()
    with known.opened(deployment()):
        for number in range(COMMITS * 3):
            known.learn(place(), f"c{number}", of(login=f"password-{number}"))

        assert known.mask_for("d1", "password-0x") == "password-0x"
        assert known.mask_for("d1", f"password-{COMMITS * 3 - 1}") == "***"


def test_deployments_that_have_ended_long_ago_are_forgotten() -> None:
    """Of an application that stays in use; one that still runs is not forgotten with them."""
    known = KnownSecrets()
    with known.opened(deployment("running")):
        known.learn(place(), "c1", of(login="hunter22"))
        for number in range(ENDED * 3):
            with known.opened(deployment(f"d{number}")):
                pass

        masked = [n for n in range(ENDED * 3) if known.mask_for(f"d{n}", "hunter22") == "***"]

        assert masked == [*range(ENDED * 2, ENDED * 3)]
        assert known.value("running", "login") == "hunter22"
        assert known.mask_for("running", "hunter22") == "***"


def test_nothing_shows_a_value() -> None:
    assert "hunter22" not in repr(of(login="hunter22"))
