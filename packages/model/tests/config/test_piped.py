# SPDX-License-Identifier: Apache-2.0
"""The document Piped: what loads, in every spelling, and what is refused."""

import json
from datetime import timedelta
from textwrap import indent

import pytest

from pipecd_model.config import ConfigFaultsError, Loaded, PipedConfig, load_piped

IDENTITY = """\
projectID: ours
pipedID: p1
pipedKeyFile: /etc/piped/key
apiAddress: pipecd.example.com:443
"""


def load(spec: str = "", *, identity: str = IDENTITY) -> Loaded[PipedConfig]:
    text = "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n" + indent(identity + spec, "  ")
    return load_piped(text, file="piped.yaml")


def faults(spec: str, *, identity: str = IDENTITY) -> list[str]:
    """Say what is wrong, without the places."""
    with pytest.raises(ConfigFaultsError) as refused:
        load(spec, identity=identity)
    for fault in refused.value.faults:
        assert fault.line > 0
    return [str(fault).split(": ", 1)[1] for fault in refused.value.faults]


def test_the_least_that_loads_has_sensible_defaults() -> None:
    config = load().config

    assert config.project_id == "ours"
    assert config.sync_interval == timedelta(minutes=1)
    assert config.app_config_sync_interval == timedelta(minutes=1)
    assert (config.git.username, config.git.email) == ("piped", "pipecd.dev@gmail.com")
    assert config.git.host == "github.com"
    assert config.plan_preview.worker_num == 3
    assert config.plan_preview.command_handle_timeout == timedelta(minutes=5)
    assert config.event_watcher.check_interval == timedelta(minutes=1)
    assert config.plugins == ()
    assert config.secret_management is None


def test_everything_an_agent_needs_is_read() -> None:
    loaded = load("""\
webAddress: https://pipecd.example.com
syncInterval: 10s
repositories:
  - {repoId: infra, remote: "git@github.com:org/infra.git", branch: main}
plugins:
  - name: kubernetes
    port: 7001
    url: file:///opt/plugins/kubernetes
    config: {chartRepositories: [{name: stable, address: https://charts.example.com}]}
    deployTargets:
      - {name: dev, labels: {env: dev}, config: {kubeConfigPath: /etc/kube/dev, ratio: 1.5}}
  - name: wait
appSelector: {team: product}
""")

    assert [each.path for each in loaded.warnings] == ["spec.webAddress"], "it has no effect"
    config = loaded.config
    assert config.repositories[0].repo_id == "infra"
    kubernetes, wait = config.plugins
    assert kubernetes.config == {
        "chartRepositories": [{"name": "stable", "address": "https://charts.example.com"}]
    }
    assert kubernetes.deploy_targets[0].config == {"kubeConfigPath": "/etc/kube/dev", "ratio": 1.5}
    assert (wait.url, wait.port, wait.config) == ("", 0, None)
    assert config.app_selector == {"team": "product"}


def test_identity_that_is_missing_is_missed_all_at_once() -> None:
    assert faults("name: x\n", identity="") == [
        "spec.projectID: missing",
        "spec.pipedID: missing",
        "spec.apiAddress: missing",
        "spec.pipedKeyFile: set exactly one of pipedKeyFile and pipedKeyData",
    ]


def test_a_key_is_a_file_or_data_and_not_both() -> None:
    assert faults("pipedKeyData: a2V5\n") == [
        "spec.pipedKeyData: set exactly one of pipedKeyFile and pipedKeyData"
    ]


def test_key_data_is_base64_and_stays_secret() -> None:
    identity = IDENTITY.replace("pipedKeyFile: /etc/piped/key", "pipedKeyData: a2V5")

    config = load(identity=identity).config

    assert config.piped_key_data is not None
    assert config.piped_key_data.decode() == b"key"
    assert "a2V5" not in repr(config)


def test_key_data_that_is_not_base64_is_refused_unshown_and_only_once() -> None:
    identity = IDENTITY.replace("pipedKeyFile: /etc/piped/key", "pipedKeyData: hunter2!")

    (told,) = faults("", identity=identity)

    assert told.startswith("spec.pipedKeyData: not base64")
    assert "hunter2" not in told


@pytest.mark.parametrize(
    "address", ["https://pipecd.example.com", "pipecd.example.com", "host:0", "host:x", ":443"]
)
def test_an_address_that_cannot_be_dialled_is_refused(address: str) -> None:
    identity = IDENTITY.replace("pipecd.example.com:443", f'"{address}"')

    (told,) = faults("", identity=identity)

    assert told.startswith(f"spec.apiAddress: not host:port: {address!r}")


@pytest.mark.parametrize("address", ["localhost:8080", "127.0.0.1:443", "[::1]:443"])
def test_addresses_that_can_be_dialled_load(address: str) -> None:
    identity = IDENTITY.replace("pipecd.example.com:443", f'"{address}"')

    assert load(identity=identity).config.api_address == address


@pytest.mark.parametrize("key", ["syncInterval", "appConfigSyncInterval"])
def test_time_does_not_run_backwards(key: str) -> None:
    assert faults(f"{key}: -1s\n") == [f"spec.{key}: must not be negative: -1s"]


def test_the_plugin_documents_own_spelling_loads() -> None:
    """`plugin`, `sourceURL`, a path, an empty source, targets without config."""
    loaded = load("""\
plugin:
  - name: k8s_plugin
    port: 8081
    sourceURL: # http or local path
    deployTargets:
      - name: dev
        labels:
          env: dev
        config: # depends on plugins
  - {name: other, port: 8082, sourceURL: /opt/plugins/other}
""")

    assert loaded.warnings == ()
    first, second = loaded.config.plugins
    assert (first.url, first.port) == ("", 8081)
    assert first.deploy_targets[0].labels == {"env": "dev"}
    assert first.deploy_targets[0].config is None
    assert second.url == "file:///opt/plugins/other"


def test_both_spellings_at_once_are_refused_unless_they_agree() -> None:
    assert faults("plugin: [{name: a}]\nplugins: [{name: b}]\n") == [
        "spec.plugins: plugins and plugin are the same setting (use only plugins)"
    ]
    assert faults("plugins: [{name: a, port: 7001, url: file:///a, sourceURL: file:///b}]\n") == [
        "spec.plugins[0].sourceURL: sourceURL and url are the same setting (use only url)"
    ]
    (agreed,) = load(
        "plugins: [{name: a, port: 7001, url: file:///a, sourceURL: file:///a}]\n"
    ).config.plugins
    assert agreed.url == "file:///a"


def test_an_empty_mapping_is_an_empty_list_of_plugins() -> None:
    assert load("plugins: {}\n").config.plugins == ()


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{port: 7001, url: file:///x}", "spec.plugins[0].name: missing"),
        (
            "{name: ../x}",
            "spec.plugins[0].name: not a plugin name: '../x' (letters, digits, . _ -)",
        ),
        (
            "{name: x, port: 7001, url: ftp://x/y}",
            (
                "spec.plugins[0].url: cannot fetch 'ftp' addresses"
                " (use file, https, oci or package, or a path)"
            ),
        ),
        (
            "{name: x, port: 7001, url: http://x/y}",
            "spec.plugins[0].url: http needs sha256 (or use https)",
        ),
        (
            "{name: x, port: 7001, url: oci://example.com/Plugins/x}",
            (
                "spec.plugins[0].url: not the address of an artifact:"
                " 'oci://example.com/Plugins/x'"
                " (write oci://host/repository[:tag][@sha256:…], the repository in small letters)"
            ),
        ),
        (
            "{name: x, port: 7001, url: oci://example.com/x, insecure: true}",
            "spec.plugins[0].url: insecure needs a digest (add @sha256:…, or give sha256)",
        ),
        (
            "{name: x, port: 7001, url: https://example.com/x, insecure: true}",
            "spec.plugins[0].insecure: only for oci (leave it out)",
        ),
        (
            "{name: x, url: file:///x}",
            "spec.plugins[0].port: missing (where the plugin listens, e.g. 7001)",
        ),
        (
            "{name: x, port: 70000, url: file:///x}",
            "spec.plugins[0].port: not a port: 70000 (1 to 65535)",
        ),
        (
            "{name: x, sha256: abc}",
            "spec.plugins[0].sha256: not a SHA-256 sum (64 hexadecimal digits)",
        ),
        (
            "{name: x, deployTargets: [{name: dev}, {name: dev}]}",
            "spec.plugins[0].deployTargets[1].name: name 'dev' is used already, by item 1",
        ),
        (
            "{name: x, deployTargets: [{labels: {}}]}",
            "spec.plugins[0].deployTargets[0].name: missing",
        ),
        (
            "{name: x, config: text}",
            "spec.plugins[0].config: expected a mapping, got the text 'text'",
        ),
    ],
)
def test_a_plugin_that_cannot_be_run_is_refused(entry: str, told: str) -> None:
    assert faults(f"plugins: [{entry}]\n") == [told]


def test_http_with_a_sum_loads() -> None:
    (plugin,) = load(
        f"plugins: [{{name: x, port: 7001, url: http://x/y, sha256: {'a1' * 32}}}]\n"
    ).config.plugins

    assert plugin.sha256 == "a1" * 32


@pytest.mark.parametrize(
    "entry",
    [
        "url: oci://example.com/x",
        "url: oci://localhost:5000/x:1, insecure: true",
        f"url: oci://example.com/x:1@sha256:{'a1' * 32}, insecure: true",
        f"url: oci://example.com/x:1, insecure: true, sha256: {'a1' * 32}",
    ],
)
def test_a_registry_is_a_source(entry: str) -> None:
    (plugin,) = load(f"plugins: [{{name: x, port: 7001, {entry}}}]\n").config.plugins

    assert plugin.url.startswith("oci://")


def test_plugins_share_neither_name_nor_port() -> None:
    assert faults("""\
plugins:
  - {name: a, port: 7001, url: file:///a}
  - {name: b, port: 7001, url: file:///b}
  - {name: a}
  - {name: c}
""") == [
        "spec.plugins[1].port: port 7001 is used already, by item 1",
        "spec.plugins[2].name: name 'a' is used already, by item 1",
    ]


def test_a_plugin_starts_with_its_entry_as_others_write_it() -> None:
    """Go plugins read it: what is empty is left out, a target's config never is."""
    bare, full = load("""\
plugins:
  - {name: wait, port: 7004, url: /opt/wait}
  - name: kubernetes
    port: 7001
    url: file:///opt/kubernetes
    config: {a: [1]}
    deployTargets:
      - {name: dev, labels: {env: dev}, config: {b: "<ü>"}}
      - {name: prod}
""").config.plugins

    assert bare.start_json() == '{"name":"wait","url":"file:///opt/wait","port":7004}'
    assert json.loads(full.start_json()) == {
        "name": "kubernetes",
        "url": "file:///opt/kubernetes",
        "port": 7001,
        "config": {"a": [1]},
        "deployTargets": [
            {"name": "dev", "labels": {"env": "dev"}, "config": {"b": "<ü>"}},
            {"name": "prod", "config": None},
        ],
    }


def test_repositories_are_complete_and_different() -> None:
    assert faults("""\
repositories:
  - {repoId: a, remote: r, branch: main}
  - {repoId: a, remote: r}
""") == [
        "spec.repositories[1].branch: missing",
        "spec.repositories[1].repoId: repoId 'a' is used already, by item 1",
    ]


def test_another_case_of_a_key_loads_and_is_told() -> None:
    loaded = load("repositories: [{repoID: a, remote: r, branch: main}]\n")

    assert loaded.config.repositories[0].repo_id == "a"
    assert [warning.message for warning in loaded.warnings] == ["elsewhere spelled 'repoId'"]


@pytest.mark.parametrize(
    ("git", "told"),
    [
        (
            "{sshKeyFile: k, sshKeyData: a2V5}",
            "spec.git.sshKeyData: sshKeyFile and sshKeyData exclude each other",
        ),
        (
            "{username: u, password: a2V5, sshKeyFile: k}",
            "spec.git.password: password and an ssh key exclude each other",
        ),
        ("{password: a2V5}", "spec.git.username: missing (a password needs its user name)"),
    ],
)
def test_git_is_signed_in_to_in_one_way(git: str, told: str) -> None:
    assert faults(f"git: {git}\n") == [told]


def test_settings_of_older_agents_are_told_where_they_went() -> None:
    loaded = load("platformProviders: [{name: k8s, type: KUBERNETES}]\n")

    assert [str(warning) for warning in loaded.warnings] == [
        (
            "piped.yaml:8:3: spec.platformProviders: unknown key, ignored"
            " (move them to plugins[].deployTargets; pipectl migrate piped-config does it)"
        )
    ]


def test_secrets_are_opened_with_a_pair_of_keys() -> None:
    config = load("""\
secretManagement:
  type: KEY_PAIR
  config: {privateKeyData: a2V5, publicKeyFile: /etc/piped/public}
""").config

    assert config.secret_management is not None
    assert config.secret_management.config.public_key_file == "/etc/piped/public"
    assert "a2V5" not in repr(config)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("{type: KEY_PAIR}", ["spec.secretManagement.config: missing"]),
        (
            "{type: KEYPAIR, config: {}}",
            [
                (
                    "spec.secretManagement.type: unknown value 'KEYPAIR'"
                    " (did you mean 'KEY_PAIR'? one of KEY_PAIR)"
                ),
                "spec.secretManagement.config: missing",
            ],
        ),
        (
            "{type: KEY_PAIR, config: {privateKeyFile: a, privateKeyData: a2V5}}",
            [
                (
                    "spec.secretManagement.config.privateKeyFile:"
                    " set exactly one of privateKeyFile and privateKeyData"
                ),
                (
                    "spec.secretManagement.config.publicKeyFile:"
                    " set exactly one of publicKeyFile and publicKeyData"
                ),
            ],
        ),
    ],
)
def test_secret_management_that_cannot_work_is_refused(section: str, told: list[str]) -> None:
    assert sorted(faults(f"secretManagement: {section}\n")) == sorted(told)


def test_notifications_load() -> None:
    loaded = load("""\
notifications:
  routes:
    - {name: all, receiver: ops, events: [DEPLOYMENT_FAILED], groups: [STAGE], labels: {a: b}}
  receivers:
    - name: ops
      slack: {hookURL: https://hooks.slack.com/T0/secret}
    - name: hook
      webhook: {url: https://example.com/hook}
""")

    ops, hook = loaded.config.notifications.receivers
    assert ops.slack is not None
    assert ops.slack.hook_url is not None
    assert ops.slack.hook_url.reveal().endswith("secret")
    assert hook.webhook is not None
    assert hook.webhook.signature_key == "PipeCD-Signature"
    assert "T0/secret" not in repr(loaded)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            "{receivers: [{name: a}]}",
            "receivers[0]: needs slack or webhook",
        ),
        (
            "{receivers: [{name: a, webhook: {signatureKey: k}}]}",
            "receivers[0].webhook.url: missing",
        ),
        (
            "{receivers: [{name: a, slack: {hookURL: h, channelID: c}}]}",
            "receivers[0].slack.channelID: hookURL and channelID exclude each other (keep one)",
        ),
        (
            "{receivers: [{name: a, slack: {oauthToken: t}}]}",
            "receivers[0].slack.channelID: missing (a token needs a channel to write to)",
        ),
        (
            "{receivers: [{name: a, slack: {oauthToken: t, oauthTokenFile: f, channelID: c}}]}",
            "receivers[0].slack.oauthTokenFile: oauthToken and oauthTokenFile exclude each other",
        ),
        (
            "{receivers: [{name: a, slack: {channelID: c}}]}",
            "receivers[0].slack: needs hookURL, or channelID with a token",
        ),
        (
            "{routes: [{name: r, receiver: opps}], receivers: [{name: ops, webhook: {url: u}}]}",
            "routes[0].receiver: there is no receiver 'opps' (did you mean 'ops'?)",
        ),
        (
            (
                "{routes: [{name: r, receiver: ops, events: [DEPLOYMENT_FAIL]}],"
                " receivers: [{name: ops, webhook: {url: u}}]}"
            ),
            (
                "routes[0].events[0]: unknown value 'DEPLOYMENT_FAIL'"
                " (did you mean 'DEPLOYMENT_FAILED'?)"
            ),
        ),
    ],
)
def test_notifications_that_reach_nobody_are_refused(section: str, told: str) -> None:
    assert faults(f"notifications: {section}\n") == [f"spec.notifications.{told}"]


def test_the_event_watcher_knows_its_repositories() -> None:
    assert faults("""\
repositories: [{repoId: infra, remote: r, branch: main}]
eventWatcher: {gitRepos: [{repoId: infra}, {repoId: infra}, {repoId: infr}, {commitMessage: m}]}
""") == [
        "spec.eventWatcher.gitRepos[1].repoId: repoId 'infra' is used already, by item 1",
        (
            "spec.eventWatcher.gitRepos[2].repoId:"
            " there is no repository 'infr' (did you mean 'infra'?)"
        ),
        "spec.eventWatcher.gitRepos[3].repoId: missing",
    ]


def test_plan_preview_counts_are_not_negative() -> None:
    assert faults("planPreview: {workerNum: -1, commandCheckInterval: -1s}\n") == [
        "spec.planPreview.workerNum: must not be negative: -1",
        "spec.planPreview.commandCheckInterval: must not be negative: -1s",
    ]


@pytest.mark.parametrize(
    ("remote", "branch", "fault"),
    [
        ("/srv/x", "a:refs/replace/b", "repositories[0].branch: 'a:refs/replace/b' is not the"),
        ("/srv/x", "--upload-pack=x", "repositories[0].branch: '--upload-pack=x' is not the name"),
        ("/srv/x", "HEAD", "repositories[0].branch: 'HEAD' is not the name of a branch"),
        ("ext::sh -c x", "main", "repositories[0].remote: 'ext::sh -c x' is not the address"),
        ("--upload-pack=x", "main", "repositories[0].remote: '--upload-pack=x' is not the address"),
        ("ssh://-oProxyCommand=x/y", "main", "its host '-oProxyCommand=x' begins with '-'"),
    ],
)
def test_a_repository_that_no_git_may_get_is_a_fault(remote: str, branch: str, fault: str) -> None:
    (found,) = faults(f"""\
repositories:
  - {{repoId: infra, remote: "{remote}", branch: "{branch}"}}
""")

    assert fault in found


def test_a_host_that_would_begin_another_line_is_a_fault() -> None:
    (found,) = faults('git: {host: "a\\n  ProxyCommand touch x"}\n')

    assert "git.host" in found


REPOSITORIES = """\
repositories:
  - {repoId: infra, remote: "git@github.com:org/infra.git", branch: main}
"""


def test_applications_are_registered_by_people_unless_the_file_says_otherwise() -> None:
    assert load().config.auto_registration is None

    config = load(
        REPOSITORIES
        + "autoRegistration: {labels: {env: dev}, repositories: [infra], paths: ['apps/**']}\n"
    ).config

    assert config.auto_registration is not None
    assert config.auto_registration.labels == {"env": "dev"}
    assert config.auto_registration.repositories == ("infra",)
    assert config.auto_registration.paths == ("apps/**",)
    assert config.auto_registration.limit == 100


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("{}", "spec.autoRegistration: selects nothing (give labels, repositories or paths;"),
        ("{limit: 5}", "spec.autoRegistration: selects nothing"),
        ("{paths: ['!']}", "spec.autoRegistration.paths[0]: a lone '!' excludes nothing"),
        (
            "{repositories: [infar]}",
            "spec.autoRegistration.repositories[0]: there is no repository 'infar' (did you mean",
        ),
        ("{paths: ['**'], limit: -1}", "spec.autoRegistration.limit: not a number of applications"),
        ("{paths: ['**'], limit: 1001}", "spec.autoRegistration.limit: not a number"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(section: str, fault: str) -> None:
    (told,) = faults(f"{REPOSITORIES}autoRegistration: {section}\n")

    assert told.startswith(fault)
