# SPDX-License-Identifier: Apache-2.0
"""The document Application: what loads, in every spelling, and what is refused."""

from datetime import timedelta
from textwrap import indent
from typing import Any

import pytest

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, Loaded, load_application

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\n"


def load(spec: str, *, head: str = HEAD) -> Loaded[ApplicationConfig]:
    return load_application(head + "spec:\n" + indent(spec, "  "), file="app.pipecd.yaml")


def faults(spec: str) -> list[str]:
    """Say what is wrong, without the places."""
    with pytest.raises(ConfigFaultsError) as refused:
        load(spec)
    for fault in refused.value.faults:
        assert fault.line > 0
    return [str(fault).split(": ", 1)[1] for fault in refused.value.faults]


def warnings(spec: str) -> list[str]:
    return [str(warning).split(": ", 1)[1] for warning in load(spec).warnings]


def script(stage: str) -> dict[str, Any]:
    (loaded,) = load(f"pipeline:\n  stages:\n{indent(stage, '    ')}").config.pipeline.stages
    return loaded.with_


def test_the_least_that_deploys_has_sensible_defaults() -> None:
    loaded = load("plugins: {kubernetes: }\n")

    config = loaded.config
    assert loaded.warnings == ()
    assert config.kind == "Application"
    assert config.plugins == {"kubernetes": {}}
    assert config.timeout == timedelta(hours=6)
    assert config.planner.auto_rollback is True
    assert config.planner.always_use_pipeline is False
    assert config.trigger.on_commit.disabled is False
    assert config.trigger.on_command.disabled is False
    assert config.trigger.on_out_of_sync.disabled is True
    assert config.trigger.on_out_of_sync.min_window == timedelta(minutes=5)
    assert config.trigger.on_chain.disabled is True
    assert config.pipeline.stages == ()
    assert config.encryption is None


def test_stages_are_in_order_with_their_options_unread() -> None:
    config = load("""\
name: shop
labels: {env: dev}
pipeline:
  stages:
    - {name: K8S_CANARY_ROLLOUT, with: {replicas: 20%, createService: true}}
    - {name: WAIT_APPROVAL, timeout: 30m, desc: ask, with: {approvers: [alice]}}
    - name: MINE
      id: x
      plugin: theirs
      with:
      skipOn: {paths: [docs/**], commitMessagePrefixes: [skip]}
""").config

    first, second, third = config.pipeline.stages
    assert [stage.index for stage in config.pipeline.stages] == [0, 1, 2]
    assert first.with_ == {"replicas": "20%", "createService": True}
    assert (first.timeout, first.plugin) == (timedelta(hours=6), None)
    assert (second.timeout, second.desc) == (timedelta(minutes=30), "ask")
    assert (third.plugin, third.with_, third.id) == ("theirs", {}, "x")
    assert third.skip_on.paths == ("docs/**",)
    assert third.skip_on.commit_message_prefixes == ("skip",)


def test_nobody_sets_a_stages_place_by_hand() -> None:
    spec = "pipeline: {stages: [{name: WAIT, index: 7}]}\n"

    assert load(spec).config.pipeline.stages[0].index == 0
    assert warnings(spec) == ["spec.pipeline.stages[0].index: unknown key, ignored"]


def test_the_script_run_documents_form_reaches_the_plugin() -> None:
    """Commands, rollback and environment stand on the stage itself there."""
    spec = """\
- name: SCRIPT_RUN
  env:
    AWS_PROFILE: default
  runs:
    - "sam build"
    - "sam deploy -g --profile $AWS_PROFILE"
  runsOnRollback:
    - "sam delete"
"""

    assert script(spec) == {
        "env": {"AWS_PROFILE": "default"},
        "runs": ["sam build", "sam deploy -g --profile $AWS_PROFILE"],
        "runsOnRollback": ["sam delete"],
    }


def test_the_guides_form_reaches_the_plugin() -> None:
    spec = """\
- name: SCRIPT_RUN
  with:
    env: {MSG: hello}
    run: |
      echo $MSG
    onRollback: |
      echo undo
"""

    assert script(spec) == {
        "env": {"MSG": "hello"},
        "run": "echo $MSG\n",
        "onRollback": "echo undo\n",
    }


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("{name: SCRIPT_RUN, run: a, onRollback: b}", {"run": "a", "onRollback": "b"}),
        ("{name: SCRIPT_RUN, Runs: [a], with: {env: {K: v}}}", {"env": {"K": "v"}, "runs": ["a"]}),
        ("{name: SCRIPT_RUN, runs: a, with: }", {"run": "a"}),
    ],
)
def test_mixed_forms_of_a_script_are_folded_together(stage: str, options: dict[str, Any]) -> None:
    assert script(f"- {stage}\n") == options


def test_what_stands_under_with_wins_and_the_other_is_told() -> None:
    spec = (
        "pipeline: {stages: [{name: SCRIPT_RUN, runs: [a], env: {K: outer},"
        " with: {run: b, env: {K: inner}}}]}\n"
    )

    loaded = load(spec)

    assert loaded.config.pipeline.stages[0].with_ == {"run": "b", "env": {"K": "inner"}}
    assert warnings(spec) == [
        "spec.pipeline.stages[0].runs: ignored, with has it too (keep the one under with)",
        "spec.pipeline.stages[0].env: ignored, with has it too (keep the one under with)",
    ]


def test_other_stages_have_no_scripts() -> None:
    found = warnings("pipeline: {stages: [{name: K8S_SYNC, runsOnRollback: [a]}]}\n")

    assert found == ["spec.pipeline.stages[0].runsOnRollback: unknown key, ignored"]


def test_secrets_may_stand_directly_under_spec_and_need_no_targets() -> None:
    loaded = load("""\
encryptedSecrets:
  password: closed-text
pipeline:
  stages:
    - name: SCRIPT_RUN
      runs: ["echo {{ .encryptedSecrets.password }}"]
""")

    assert loaded.warnings == ()
    assert loaded.config.encryption is not None
    assert loaded.config.encryption.encrypted_secrets == {"password": "closed-text"}
    assert loaded.config.encryption.decryption_targets == ()


def test_secrets_under_encryption_load_with_targets() -> None:
    config = load("""\
plugins: {a: }
encryption:
  encryptedSecrets: {password: closed-text}
  decryptionTargets: [secret.yaml]
""").config

    assert config.encryption is not None
    assert config.encryption.decryption_targets == ("secret.yaml",)


def test_secrets_are_given_in_one_place() -> None:
    assert faults("""\
encryptedSecrets: {a: x}
encryption: {encryptedSecrets: {b: z}}
""") == [
        (
            "spec.encryptedSecrets: encryptedSecrets and encryption.encryptedSecrets"
            " are the same setting (use only encryption.encryptedSecrets)"
        )
    ]


def test_a_secret_that_nobody_uses_is_told() -> None:
    assert warnings("plugins: {a: }\nencryption: {encryptedSecrets: {pw: x}}\n") == [
        (
            "spec.encryption.encryptedSecrets.pw: the secret 'pw' is used by no target and no stage"
            " (list the files that name it under decryptionTargets)"
        )
    ]


def test_the_plugin_documents_kind_label_becomes_a_label() -> None:
    head = HEAD + "metadata:\n  labels:\n    kind: KUBERNETES\n"

    assert load("name: myApp\n", head=head).config.labels == {"kind": "KUBERNETES"}
    assert load("labels: {kind: OWN, a: b}\n", head=head).config.labels == {
        "kind": "OWN",
        "a": "b",
    }


@pytest.mark.parametrize("metadata", ["x", "{labels: [a]}", "{labels: {kind: 5}}", "{name: n}"])
def test_other_metadata_is_free_text(metadata: str) -> None:
    assert load("name: x\n", head=f"{HEAD}metadata: {metadata}\n").config.labels == {}


def test_trigger_paths_of_old_are_read() -> None:
    spec = "plugins: {a: }\ntriggerPaths: [shared/**]\ntrigger: {onCommit: {ignores: ['*.md']}}\n"

    rule = load(spec).config.trigger.on_commit

    assert (rule.paths, rule.ignores) == (("shared/**",), ("*.md",))
    assert warnings(spec) == ["spec.triggerPaths: old spelling (use trigger.onCommit.paths)"]


def test_an_explicit_false_stays() -> None:
    config = load("""\
planner: {autoRollback: false}
trigger: {onOutOfSync: {disabled: false}, onChain: {disabled: false}}
""").config

    assert config.planner.auto_rollback is False
    assert config.trigger.on_out_of_sync.disabled is False
    assert config.trigger.on_chain.disabled is False


def test_zero_means_the_default() -> None:
    config = load("timeout: 0s\ntrigger: {onOutOfSync: {minWindow: 0}}\n").config

    assert config.timeout == timedelta(hours=6)
    assert config.trigger.on_out_of_sync.min_window == timedelta(minutes=5)


def test_the_other_sections_are_read() -> None:
    loaded = load("""\
plugins: {a: }
description: |
  text
commitMatcher: {pipeline: "^Roll", quickSync: "^Fix"}
attachment: {sources: {config: config.yaml}, targets: [taskdef.yaml]}
notification: {mentions: [{event: "*", slackUsers: [U1]}, {event: DEPLOYMENT_FAILED, slack: [U2]}]}
postSync: {chain: {applications: [{name: next}, {kind: ECS}, {labels: {a: b}}]}}
eventWatcher:
  - matcher: {name: image-update, labels: {app: shop}}
    handler:
      type: GIT_UPDATE
      config:
        replacements:
          - {file: deploy.yaml, yamlField: $.spec.image}
          - {file: version.txt, regex: "v(.*)"}
driftDetection: {ignoreFields: ["apps/v1:Deployment:default:web#spec.replicas"]}
""")

    config = loaded.config
    assert config.commit_matcher.pipeline == "^Roll"
    assert config.attachment is not None
    assert config.attachment.sources == {"config": "config.yaml"}
    assert config.notification is not None
    assert config.notification.mentions[0].slack_users == ("U1",)
    assert config.post_sync is not None
    assert config.post_sync.chain is not None
    assert [each.name for each in config.post_sync.chain.applications] == ["next", "", ""]
    assert config.event_watcher[0].handler.config.replacements[0].yaml_field == "$.spec.image"
    assert config.drift_detection is not None


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("pipeline: [{name: WAIT}]", "spec.pipeline: expected a mapping, got a list (with stages)"),
        (
            "pipeline: {stages: {name: WAIT}}",
            'spec.pipeline.stages: expected a list, got a mapping (start each item with "- ")',
        ),
        (
            "pipeline: {stages: [{name: SCRIPT_RUN_ROLLBACK}]}",
            (
                "spec.pipeline.stages[0].name:"
                " SCRIPT_RUN_ROLLBACK is added by itself (remove the stage)"
            ),
        ),
        ("timeout: -5m", "spec.timeout: must be positive: -5m0s"),
        (
            "pipeline: {stages: [{name: A, timeout: -5m}]}",
            "spec.pipeline.stages[0].timeout: must be positive: -5m0s",
        ),
        (
            "timeout:",
            "spec.timeout: the value is empty (remove the key or give e.g. 90s, 5m)",
        ),
        ("plugins: [kubernetes]", "spec.plugins: expected a mapping, got a list"),
        (
            "plugins: {kubernetes: yes}",
            "spec.plugins.kubernetes: expected a mapping, got true",
        ),
        (
            "encryption: {encryptedSecrets: {pw: ''}}",
            "spec.encryption.encryptedSecrets.pw: the encrypted secret 'pw' is empty",
        ),
        (
            "encryption: {decryptionTargets: [/etc/passwd]}",
            (
                "spec.encryption.decryptionTargets[0]: not inside the repository: '/etc/passwd'"
                " (write it relative to the application's folder)"
            ),
        ),
        (
            "attachment: {sources: {a: b}}",
            "spec.attachment.targets: missing (which files name the attachments?)",
        ),
        (
            "notification: {mentions: [{event: DEPLOYMENT_SUCCEED}]}",
            (
                "spec.notification.mentions[0].event: unknown value 'DEPLOYMENT_SUCCEED'"
                " (did you mean 'DEPLOYMENT_SUCCEEDED'?)"
            ),
        ),
        ("notification: {mentions: [{}]}", "spec.notification.mentions[0].event: missing"),
        (
            "postSync: {chain: {applications: []}}",
            "spec.postSync.chain.applications: needs at least one application",
        ),
        (
            "postSync: {chain: {applications: [{}]}}",
            "spec.postSync.chain.applications[0]: needs name, kind or labels",
        ),
        (
            "postSync: {chain: {applications: [{kind: ECSApp}]}}",
            (
                "spec.postSync.chain.applications[0].kind:"
                " unknown value 'ECSApp' (did you mean 'ECS'?)"
            ),
        ),
        (
            "driftDetection: {ignoreFields: [spec.replicas]}",
            (
                "spec.driftDetection.ignoreFields[0]: not a field: 'spec.replicas'"
                " (written as apiVersion:kind:namespace:name#fieldPath)"
            ),
        ),
        (
            "commitMatcher: {pipeline: '['}",
            ("spec.commitMatcher.pipeline: not a regular expression: '[' (missing ] at '[')"),
        ),
        (
            "commitMatcher: {quickSync: 'a(?=b)'}",
            (
                "spec.commitMatcher.quickSync: not a regular expression: 'a(?=b)'"
                " (invalid perl operator at '(?=';"
                " look-around and back-references are not supported)"
            ),
        ),
        (
            "trigger: {onCommit: {paths: ['[']}}",
            ("spec.trigger.onCommit.paths[0]: bad pattern '[': missing ] at '['"),
        ),
        (
            "pipeline: {stages: [{name: A, skipOn: {paths: ['!']}}]}",
            "spec.pipeline.stages[0].skipOn.paths[0]: a lone '!' excludes nothing",
        ),
        (
            "pipeline: {stages: [{name: A, skipOn: success}]}",
            (
                "spec.pipeline.stages[0].skipOn: expected a mapping, got the text 'success'"
                " (with commitMessagePrefixes, paths)"
            ),
        ),
        (
            "eventWatcher: [{matcher: {name: x}, handler: {type: GIT_UPDATES}}]",
            (
                "spec.eventWatcher[0].handler.type: unknown value 'GIT_UPDATES'"
                " (did you mean 'GIT_UPDATE'? one of GIT_UPDATE)"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused(spec: str, told: str) -> None:
    assert faults(spec + "\n") == [told]


@pytest.mark.parametrize(
    ("replacement", "told"),
    [
        ("{yamlField: $.a}", "file: missing"),
        ("{file: f}", "yamlField: set exactly one of yamlField and regex"),
        ("{file: f, yamlField: $.a, regex: (a)}", "regex: set exactly one of yamlField and regex"),
        (
            "{file: f, yamlField: spec.image}",
            "yamlField: not a path: 'spec.image' (must start with $, e.g. $.spec.image)",
        ),
        ("{file: f, regex: abc}", "regex: has no group (put ( ) around what is replaced)"),
        ("{file: f, jsonField: a}", "jsonField: not supported (use yamlField or regex)"),
        ("{file: f, HCLField: a}", "HCLField: not supported (use yamlField or regex)"),
    ],
)
def test_a_replacement_that_would_spoil_a_file_is_refused(replacement: str, told: str) -> None:
    spec = (
        "eventWatcher: [{matcher: {name: x}, handler:"
        f" {{type: GIT_UPDATE, config: {{replacements: [{replacement}]}}}}}}]\n"
    )

    assert faults(spec) == [f"spec.eventWatcher[0].handler.config.replacements[0].{told}"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("name: x", "spec: nothing to deploy (give pipeline.stages or plugins)"),
        (
            "plugins: {a: }\ninput: {}",
            "spec.input: unknown key, ignored (move it to plugins.<name>.input)",
        ),
        (
            "plugins: {a: }\nplugin: ecs",
            "spec.plugin: nobody reads it (name the plugin under plugins)",
        ),
        (
            "plugins: {a: }\ndeployTargets: [dev]",
            (
                "spec.deployTargets: nobody reads it (write deployTargets: {PLUGIN: [TARGET]}, or"
                " choose them with: pipectl application update NAME --deploy-target PLUGIN=TARGET)"
            ),
        ),
        (
            "plugins: {a: }\ntimeout: 30",
            "spec.timeout: a bare number counts nanoseconds: 30 (did you mean 30s?)",
        ),
    ],
)
def test_what_is_odd_loads_and_is_told(spec: str, told: str) -> None:
    assert warnings(spec + "\n") == [told]


def test_deploy_targets_are_named_by_plugin() -> None:
    loaded = load("deployTargets: {kubernetes: [dev, prod], files: [east]}\n")

    assert not loaded.warnings
    assert loaded.config.deploy_targets == {"kubernetes": ("dev", "prod"), "files": ("east",)}


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        (
            "[]",
            (
                "kubernetes: names no deploy target"
                " (name its targets, or remove the key to have those it was registered with)"
            ),
        ),
        ("[dev, dev]", "kubernetes[1]: the target 'dev' is named twice"),
        ('[" "]', "kubernetes[0]: a deploy target has a name"),
    ],
)
def test_wrong_deploy_targets_are_told(targets: str, told: str) -> None:
    assert faults(f"deployTargets: {{kubernetes: {targets}}}\n") == [f"spec.deployTargets.{told}"]
