# SPDX-License-Identifier: Apache-2.0
"""Triggers: what deploys an application, and what does not."""

import pytest

from pipecd_model import trigger
from pipecd_model.config import ApplicationConfig, load_application


def application(spec: str = "{}") -> ApplicationConfig:
    text = f"apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {spec}\n"
    return load_application(text, file="app.pipecd.yaml").config


def touched(*changed: str, app_dir: str = "apps/shop", **rules: tuple[str, ...]) -> bool:
    return trigger.is_touched(
        changed,
        app_dir=app_dir,
        paths=rules.get("paths", ()),
        ignores=rules.get("ignores", ()),
    )


def test_a_file_in_the_applications_folder_touches_it() -> None:
    assert touched("apps/shop/deploy.yaml")
    assert touched("apps/shop/deep/er.yaml")


def test_a_file_elsewhere_does_not_touch_it() -> None:
    assert not touched("apps/shopping/deploy.yaml", "README.md", "apps/shop")


@pytest.mark.parametrize("app_dir", [".", "./", ""])
def test_everything_touches_an_application_in_the_root(app_dir: str) -> None:
    assert touched("README.md", app_dir=app_dir)


def test_a_folder_may_be_written_in_any_way() -> None:
    assert touched("apps/shop/a.yaml", app_dir="./apps/shop/")


def test_further_paths_touch_it() -> None:
    assert touched("charts/base/values.yaml", paths=("charts/**",))


def test_an_ignored_file_alone_does_not_touch_it() -> None:
    assert not touched("apps/shop/README.md", ignores=("**/*.md",))


def test_an_ignored_file_takes_out_itself_and_not_the_rest_of_the_commit() -> None:
    """A commit that mends a manifest and its README must be deployed."""
    assert touched("apps/shop/README.md", "apps/shop/deploy.yaml", ignores=("**/*.md",))


def test_ignores_beat_further_paths() -> None:
    assert not touched("charts/README.md", paths=("charts/**",), ignores=("**/*.md",))


def test_a_commit_that_touches_nothing_is_not_deployed() -> None:
    decision = trigger.on_commit(
        application(), app_dir="a", head="2222222222", last="1111111111", changed=["b/x"]
    )

    assert not decision.deploy
    assert decision.reason == "the commit 2222222 touches none of its files"


def test_a_commit_that_touches_the_application_is_deployed_and_says_by_which_file() -> None:
    decision = trigger.on_commit(
        application(), app_dir="a", head="2222222222", last="1111111111", changed=["b/x", "a/x"]
    )

    assert decision.deploy
    assert decision.reason == "the commit 2222222 changes a/x"


def test_the_first_commit_is_deployed_whatever_it_changes() -> None:
    decision = trigger.on_commit(application(), app_dir="a", head="2", last=None, changed=[])

    assert decision.deploy


def test_a_commit_is_not_deployed_twice() -> None:
    decision = trigger.on_commit(application(), app_dir="a", head="2", last="2", changed=["a/x"])

    assert not decision.deploy


def test_an_application_can_refuse_commits() -> None:
    config = application("{trigger: {onCommit: {disabled: true}}}")

    decision = trigger.on_commit(config, app_dir="a", head="2", last=None, changed=["a/x"])

    assert not decision.deploy


def test_a_command_deploys_unless_the_application_refuses() -> None:
    assert trigger.on_command(application()).deploy
    assert not trigger.on_command(application("{trigger: {onCommand: {disabled: true}}}")).deploy
