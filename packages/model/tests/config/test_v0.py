# SPDX-License-Identifier: Apache-2.0
"""Application files of the older kinds: they load, and mean what they meant."""

import json
from datetime import timedelta
from textwrap import indent

import pytest

from pipecd_model import known_plugins
from pipecd_model.config import (
    ApplicationConfig,
    ConfigFaultsError,
    Loaded,
    application_for_plugins,
    load_application,
)


def load(kind: str, spec: str) -> Loaded[ApplicationConfig]:
    text = f"apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n{indent(spec, '  ')}"
    return load_application(text, file="app.pipecd.yaml")


def test_the_guides_application_loads_as_it_is_printed() -> None:
    loaded = load(
        "KubernetesApp",
        """\
name: canary-with-script-run
labels:
  env: example
  team: product
pipeline:
  stages:
    - name: K8S_CANARY_ROLLOUT
      with:
        replicas: 10%
    - name: WAIT
      with:
        duration: 10s
    - name: SCRIPT_RUN
      with:
        env:
          MSG: "execute script1"
          R_MSG: "rollback script1"
        run: |
          echo $MSG
          sleep 10
        onRollback: |
          echo $R_MSG
          sleep 10
    - name: K8S_PRIMARY_ROLLOUT
    - name: K8S_CANARY_CLEAN
""",
    )

    assert loaded.warnings == ()
    assert loaded.config.kind == "KubernetesApp"
    assert loaded.config.name == "canary-with-script-run"
    assert loaded.config.labels == {"env": "example", "team": "product", "kind": "KUBERNETES"}
    assert [stage.name for stage in loaded.config.pipeline.stages] == [
        "K8S_CANARY_ROLLOUT",
        "WAIT",
        "SCRIPT_RUN",
        "K8S_PRIMARY_ROLLOUT",
        "K8S_CANARY_CLEAN",
    ]
    assert loaded.config.pipeline.stages[2].with_["onRollback"] == "echo $R_MSG\nsleep 10\n"
    assert loaded.config.plugins == {"kubernetes": {}}


def test_the_script_run_documents_first_application_loads_as_it_is_printed() -> None:
    loaded = load(
        "LambdaApp",
        """\
encryptedSecrets:
  password: encrypted-secrets
pipeline:
  stages:
    - name: SCRIPT_RUN
      env:
        AWS_PROFILE: default
      runs:
        - "echo {{ .encryptedSecrets.password }} | sudo -S su"
        - "sam build"
        - "sam deploy -g --profile $AWS_PROFILE"
""",
    )

    (stage,) = loaded.config.pipeline.stages
    assert loaded.warnings == ()
    assert stage.with_["env"] == {"AWS_PROFILE": "default"}
    assert len(stage.with_["runs"]) == 3
    assert loaded.config.encryption is not None
    assert loaded.config.encryption.encrypted_secrets == {"password": "encrypted-secrets"}


def test_a_stages_limit_and_skip_rule_may_stand_among_its_options() -> None:
    loaded = load(
        "KubernetesApp",
        "pipeline: {stages: [{name: WAIT_APPROVAL,"
        " with: {timeout: 30m, skipOn: {paths: [docs/**]}}}]}\n",
    )

    (stage,) = loaded.config.pipeline.stages
    assert stage.timeout == timedelta(minutes=30)
    assert stage.skip_on.paths == ("docs/**",)


def test_what_stands_on_the_stage_wins() -> None:
    loaded = load(
        "KubernetesApp",
        "pipeline: {stages: [{name: SCRIPT_RUN, timeout: 1m, with: {run: a, timeout: 30m}}]}\n",
    )

    assert loaded.config.pipeline.stages[0].timeout == timedelta(minutes=1)


def test_todays_kind_leaves_the_options_to_the_plugin() -> None:
    loaded = load("Application", "pipeline: {stages: [{name: MINE, with: {timeout: 30m}}]}\n")

    (stage,) = loaded.config.pipeline.stages
    assert stage.timeout == timedelta(hours=6)
    assert stage.with_ == {"timeout": "30m"}


@pytest.mark.parametrize(
    ("kind", "plugin"),
    [
        ("KubernetesApp", "kubernetes"),
        ("CloudRunApp", "cloudrun"),
        ("LambdaApp", "lambda"),
    ],
)
def test_the_platforms_settings_become_the_plugins_section(kind: str, plugin: str) -> None:
    loaded = load(kind, "input: {a: 1}\nquickSync: {b: 2}\n")

    assert loaded.warnings == ()
    assert loaded.config.plugins == {plugin: {"input": {"a": 1}, "quickSync": {"b": 2}}}


def test_terraforms_settings_stand_directly_in_its_section() -> None:
    loaded = load("TerraformApp", "input: {workspace: dev, autoRollback: true}\nquickSync: {}\n")

    assert loaded.config.plugins == {"terraform": {"workspace": "dev", "quickSync": {}}}
    assert loaded.config.planner.auto_rollback


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{}", {"runStandaloneTask": True}),
        ("{serviceDefinitionFile: s.yaml}", {"serviceDefinitionFile": "s.yaml"}),
        ("{runStandaloneTask: false}", {"runStandaloneTask": False}),
    ],
)
def test_a_task_without_a_service_still_runs_alone(given: str, expected: dict[str, object]) -> None:
    assert load("ECSApp", f"input: {given}\n").config.plugins == {"ecs": {"input": expected}}


def test_percentages_of_ecs_stages_become_numbers() -> None:
    loaded = load(
        "ECSApp",
        "pipeline: {stages: [{name: ECS_CANARY_ROLLOUT, with: {scale: 30%}},"
        " {name: ECS_TRAFFIC_ROUTING, with: {canary: 20%}}]}\n",
    )

    assert [each.with_ for each in loaded.config.pipeline.stages] == [{"scale": 30}, {"canary": 20}]


def test_queries_of_an_analysis_still_know_their_namespace() -> None:
    analysis = "pipeline: {stages: [{name: ANALYSIS, with: {duration: 1m}}]}\n"

    named = load("KubernetesApp", f"input: {{namespace: shop}}\n{analysis}").config.plugins
    assert named["analysis"] == {"appCustomArgs": {"k8sNamespace": "shop"}}
    unnamed = load("KubernetesApp", analysis).config.plugins
    assert unnamed["analysis"] == {"appCustomArgs": {"k8sNamespace": "default"}}


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("KubernetesApp", "trafficRouting: {method: smi}", "spec.trafficRouting.method"),
        ("KubernetesApp", "resourceRoutes: []", "spec.resourceRoutes"),
        (
            "KubernetesApp",
            "input: {helmChart: {gitRemote: git@x.org:y.git}}",
            "spec.input.helmChart.gitRemote",
        ),
        (
            "LambdaApp",
            "pipeline: {stages: [{name: CUSTOM_SYNC, with: {run: x}}]}",
            "spec.pipeline.stages[0].name",
        ),
        (
            "TerraformApp",
            "pipeline: {stages: [{name: TERRAFORM_SYNC}]}",
            "spec.pipeline.stages[0].name",
        ),
        (
            "ECSApp",
            "pipeline: {stages: [{name: ANALYSIS, with: {metrics: [{query: '{{ .App.Env }}'}]}}]}",
            "spec.pipeline.stages[0].with",
        ),
        (
            "ECSApp",
            "postSync: {chain: {applications: [{labels: {a: b}}]}}",
            "spec.postSync.chain.applications[0]",
        ),
    ],
)
def test_what_is_no_longer_as_it_was_is_told(kind: str, spec: str, path: str) -> None:
    assert path in [each.path for each in load(kind, f"{spec}\n").warnings]


def test_kubernetes_has_more_settings_than_others() -> None:
    spec = "service: {name: web}\nworkloads: [{name: web}]\n"

    assert load("KubernetesApp", spec).config.plugins["kubernetes"] == {
        "service": {"name": "web"},
        "workloads": [{"name": "web"}],
    }
    assert [each.path for each in load("ECSApp", spec).warnings] == [
        "spec.service",
        "spec.workloads",
    ]


def test_a_section_of_the_plugin_wins_over_the_older_place() -> None:
    loaded = load(
        "KubernetesApp",
        "input: {a: old}\nquickSync: {b: 1}\nplugins: {kubernetes: {input: {a: new}}, wait: }\n",
    )

    assert loaded.config.plugins == {
        "kubernetes": {"input": {"a": "new"}, "quickSync": {"b": 1}},
        "wait": {},
    }


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("KubernetesApp", "name: x\n", True),
        ("KubernetesApp", "input: {autoRollback: false}\n", False),
        ("KubernetesApp", "input: {autoRollback: false}\nplanner: {autoRollback: true}\n", True),
        ("TerraformApp", "name: x\n", False),
        ("TerraformApp", "input: {autoRollback: true}\n", True),
        ("TerraformApp", "planner: {autoRollback: true}\n", True),
    ],
)
def test_rollback_is_on_or_off_as_it_was(kind: str, spec: str, expected: bool) -> None:
    assert load(kind, spec).config.planner.auto_rollback is expected


@pytest.mark.parametrize(
    "spec", ["plugins: [a]\n", "planner: x\n", "pipeline: 5\n", "pipeline: {stages: [5]}\n"]
)
def test_what_is_wrong_in_an_older_file_is_said_like_anywhere(spec: str) -> None:
    with pytest.raises(ConfigFaultsError):
        load("KubernetesApp", spec)


def test_the_plugin_that_offers_the_kinds_stages_gets_its_settings_whatever_its_name() -> None:
    names = known_plugins.find_configured_names({"k8s_plugin": ["K8S_SYNC"], "wait": ["WAIT"]})
    text = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {input: {namespace: a}}\n"

    config = load_application(text, file="f", names=names).config

    assert names == {"kubernetes": "k8s_plugin"}
    assert config.plugins == {"k8s_plugin": {"input": {"namespace": "a"}}}


def test_two_plugins_that_could_be_meant_are_not_chosen_from() -> None:
    offered = {"one": ["K8S_SYNC"], "two": ["K8S_SYNC"], "terraform": ["TERRAFORM_APPLY"]}

    assert known_plugins.find_configured_names(offered) == {}


def test_plugins_read_an_older_file_in_todays_shape() -> None:
    text = b"apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {input: {namespace: a}}\n"

    passed_on = application_for_plugins(text, file="f", names={"kubernetes": "k8s"})

    document = json.loads(passed_on)
    assert document["kind"] == "Application"
    assert document["spec"]["plugins"] == {"k8s": {"input": {"namespace": "a"}}}
    assert application_for_plugins(passed_on, file="f") == passed_on


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{run: a}", {"run": "a"}),
        ("{run: [a, b]}", {"runs": ["a", "b"]}),
        ("{runs: a}", {"run": "a"}),
        ("{onRollback: [a], runs: [b]}", {"runsOnRollback": ["a"], "runs": ["b"]}),
        ("{run: a, runs: [b]}", {"run": "a", "runs": ["b"]}),
    ],
)
def test_a_script_is_a_text_or_a_list_whichever_key_it_has(
    written: str, read: dict[str, object]
) -> None:
    spec = f"pipeline: {{stages: [{{name: SCRIPT_RUN, with: {written}}}]}}\n"

    assert load("Application", spec).config.pipeline.stages[0].with_ == read
