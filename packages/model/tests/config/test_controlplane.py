# SPDX-License-Identifier: Apache-2.0
"""The document ControlPlane: what loads, and that nothing unknown does."""

from datetime import timedelta
from textwrap import indent

import pytest

from pipecd_model.config import (
    ConfigFaultsError,
    ControlPlaneConfig,
    Loaded,
    load_control_plane,
)
from pipecd_model.config.controlplane import (
    FolderConfig,
    MinioConfig,
    PostgresqlConfig,
    S3Config,
    SqliteConfig,
)

HASH = "$2b$04$/J/qn9y7u8.vxCZLJSHvUuPUJF7v5HhMJj1qFB7vsnc2ZpNgDkFGu"


def load(spec: str) -> Loaded[ControlPlaneConfig]:
    head = "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
    return load_control_plane(head + indent(spec, "  "), file="control-plane.yaml")


def faults(spec: str) -> list[str]:
    with pytest.raises(ConfigFaultsError) as refused:
        load(spec)
    return [str(fault).split(": ", 1)[1] for fault in refused.value.faults]


def test_one_process_needs_no_setting_at_all() -> None:
    config = load("").config

    assert (config.datastore.type, config.datastore.config) == ("SQLITE", SqliteConfig())
    assert (config.filestore.type, config.filestore.config) == ("FOLDER", FolderConfig())
    assert config.cache.ttl == timedelta(minutes=5)
    assert config.insight_collector.deployment.chunk_max_count == 1000
    assert config.projects == ()


def test_projects_and_keys_load_and_stay_secret() -> None:
    loaded = load(f"""\
address: https://pipecd.example.com
stateKey: hunter2
projects:
  - id: quickstart
    desc: the first one
    staticAdmin: {{username: hello, passwordHash: "{HASH}"}}
""")

    (project,) = loaded.config.projects
    assert project.static_admin is not None
    assert project.static_admin.password_hash.reveal() == HASH
    assert "hunter2" not in repr(loaded)
    assert HASH not in repr(loaded)


def test_each_store_has_its_own_settings() -> None:
    config = load("""\
datastore: {type: POSTGRESQL, config: {url: "postgresql://u:pw@db/pipecd"}}
filestore: {type: S3, config: {bucket: b, region: eu-west-1, roleARN: r}}
""").config

    assert isinstance(config.datastore.config, PostgresqlConfig)
    assert isinstance(config.filestore.config, S3Config)
    assert config.filestore.config.role_arn == "r"
    assert "pw" not in repr(config.datastore)


def test_a_path_for_sqlite_needs_no_type() -> None:
    config = load("datastore: {config: {path: /var/lib/pipecd/db}}\n").config

    assert config.datastore.config == SqliteConfig(path="/var/lib/pipecd/db")


def test_minio_is_s3_at_an_address() -> None:
    config = load(
        "filestore: {type: MINIO, config: {endpoint: http://minio:9000, bucket: b}}\n"
    ).config

    assert isinstance(config.filestore.config, MinioConfig)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("datastores: {}", "spec.datastores: unknown key (did you mean 'datastore'?)"),
        (
            "datastore: {type: SQLITE, config: {pth: x}}",
            "spec.datastore.config.pth: unknown key (did you mean 'path'?)",
        ),
        (
            "datastore: {type: MYSQL}",
            "spec.datastore.type: MYSQL is not supported (use POSTGRESQL)",
        ),
        (
            "datastore: {type: POSTGRES}",
            (
                "spec.datastore.type: unknown value 'POSTGRES'"
                " (did you mean 'POSTGRESQL'? one of SQLITE, POSTGRESQL)"
            ),
        ),
        (
            "datastore: {type: POSTGRESQL}",
            "spec.datastore.config: missing (POSTGRESQL needs config.url)",
        ),
        ("datastore: {type: POSTGRESQL, config: {}}", "spec.datastore.config.url: missing"),
        ("filestore: {type: GCS}", "spec.filestore.type: GCS is not supported (use S3 or FOLDER)"),
        ("filestore: {type: S3}", "spec.filestore.config: missing (S3 needs config.bucket)"),
        ("projects: [{desc: x}]", "spec.projects[0].id: missing"),
        (
            "projects: [{id: a}, {id: a}]",
            "spec.projects[1].id: id 'a' is used already, by item 1",
        ),
        (
            "projects: [{id: a, staticAdmin: {username: u, passwordHash: plain}}]",
            "spec.projects[0].staticAdmin.passwordHash: not a bcrypt hash (starts with $2)",
        ),
        (
            "insightCollector: {application: {schedule: every hour}}",
            (
                "spec.insightCollector.application.schedule: not a schedule: 'every hour'"
                " (five fields: 0 * * * *)"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused(spec: str, told: str) -> None:
    assert faults(spec + "\n") == [told]


def test_an_unknown_key_beside_spec_is_refused_too() -> None:
    text = "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspecs: {}\n"

    with pytest.raises(ConfigFaultsError, match="specs: unknown key"):
        load_control_plane(text, file="f")


def test_signing_in_through_others_loads_in_both_spellings() -> None:
    loaded = load("""\
address: https://pipecd.example.com
stateKey: s
sharedSSOConfigs:
  - name: gh
    provider: GITHUB
    github: {clientId: i, clientSecret: s, baseUrl: u}
  - name: own
    provider: OIDC
    session_ttl: 24
    oidc: {client_id: i, client_secret: s, issuer: u, redirect_uri: r}
""")

    github, oidc = loaded.config.shared_sso_configs
    assert github.session_ttl == 168
    assert oidc.session_ttl == 24
    assert oidc.oidc is not None
    assert oidc.oidc.scopes == ("openid",)
    assert oidc.oidc.redirect_uri == "r"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{provider: GITHUB, github: {clientId: i, clientSecret: s}}", "name: missing"),
        ("{name: a}", "provider: missing"),
        ("{name: a, provider: GITHUB}", "github: missing (the provider is GITHUB)"),
        (
            "{name: a, provider: OIDC, oidc: {clientId: i, clientSecret: s, issuer: u}}",
            "oidc.redirectUri: missing",
        ),
        (
            "{name: a, provider: GITHUB, sessionTtl: -1, github: {clientId: i, clientSecret: s}}",
            "sessionTtl: must be positive: -1",
        ),
    ],
)
def test_a_way_to_sign_in_that_cannot_work_is_refused(entry: str, told: str) -> None:
    spec = f"address: https://a\nstateKey: s\nsharedSSOConfigs: [{entry}]\n"

    assert faults(spec) == [f"spec.sharedSSOConfigs[0].{told}"]


def test_signing_in_through_others_needs_an_address_and_a_key() -> None:
    assert faults(
        "sharedSSOConfigs: [{name: a, provider: GITHUB, github: {clientId: i, clientSecret: s}}]\n"
    ) == [
        "spec.address: missing (signing in through others needs it)",
        "spec.stateKey: missing (signing in through others needs it)",
    ]


def test_limits_have_safe_defaults_and_can_be_set() -> None:
    config = load(
        "limits: {maxConnections: 500, maxConnectionsPerAddress: 500,"
        " maxStrangerConnections: 300, headerTimeout: 5s}\n"
        "trustedProxies: [10.0.0.0/8, '2001:db8::1']"
    ).config

    assert config.limits.max_connections == 500
    assert config.limits.header_timeout == timedelta(seconds=5)
    assert config.limits.max_header_bytes == 64 * 1024
    assert config.limits.max_message_bytes == 10 * 1024 * 1024
    assert config.trusted_proxies == ("10.0.0.0/8", "2001:db8::1")


def test_the_proxy_protocol_is_that_of_trusted_proxies() -> None:
    by_it = load("trustedProxies: [10.0.0.7]\nproxyProtocol: true\n")
    of_nobody = load("proxyProtocol: true\n")

    assert by_it.config.proxy_protocol
    assert not by_it.warnings
    assert not load("trustedProxies: [10.0.0.7]\n").config.proxy_protocol
    [warning] = of_nobody.warnings
    assert str(warning).endswith("spec.proxyProtocol: has no effect without trustedProxies")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("limits: {headerTimeout: -1s}", "spec.limits.headerTimeout: must be positive"),
        ("limits: {maxCalls: -5}", "spec.limits.maxCalls: must be positive"),
        (
            "limits: {bodyTimeout: 5s}",
            "spec.limits.bodyIdleTimeout: 15s is more than bodyTimeout, which is 5s",
        ),
        (
            "limits: {maxConnections: 100}",
            "spec.limits.maxConnectionsPerAddress: 1000 is more than maxConnections",
        ),
        (
            "limits: {maxStrangersPerAddress: 2000}",
            "spec.limits.maxStrangersPerAddress: 2000 is more than maxStrangerConnections",
        ),
        ("limits: {maxStrangerCalls: 3}", "4 is more than maxStrangerCalls, which is 3"),
        ("limits: {maxCalls: 900}", "maxCallsPerCaller: 1000 is more than maxCalls, which is 900"),
        ("limits: {maxStreamsPerConnection: 3}", "4 is more than maxStreamsPerConnection"),
        ("limits: {maxFormBytes: 100}", "spec.limits.maxFormBytes: 100 is too little"),
        ("limits: {maxStrangerBytes: 50000}", "65536 is more than maxStrangerBytes"),
        ("limits: {maxHeaderBytes: 100}", "spec.limits.maxHeaderBytes: 100 is too little"),
        ("limits: {maxURLBytes: 100}", "spec.limits.maxURLBytes: 100 is too little"),
        ("limits: {maxMessageBytes: 100}", "spec.limits.maxMessageBytes: 100 is too little"),
        (
            "limits: {maxAdminConnections: 100}",
            "spec.limits.descriptorReserve: 128 is too little",
        ),
        ("trustedProxies: [proxy.example.com]", "not a network: 'proxy.example.com'"),
        ("trustedProxies: [10.0.0.1/8]", "not a network: '10.0.0.1/8'"),
        ("trustedProxies: ['0.0.0.0/0']", "'0.0.0.0/0' is everybody"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(spec: str, told: str) -> None:
    assert any(told in fault for fault in faults(spec)), faults(spec)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("endpoint: minio:9000", "spec.filestore.config.endpoint: not an address: 'minio:9000'"),
        ("endpoint: 'http://'", "spec.filestore.config.endpoint: not an address: 'http://'"),
        ("endpoint: http://m:99999", "spec.filestore.config.endpoint: not an address: "),
        ("endpoint: http://m m", "spec.filestore.config.endpoint: not an address: 'http://m m'"),
        ("endpoint: http://m, region: 'eu 1'", "spec.filestore.config.region: not a region: "),
        (
            "endpoint: 'https://ada:hunter2@m'",
            "spec.filestore.config.endpoint: holds a user or a password",
        ),
        ("endpoint: http://m, accessKeyFile: a", "spec.filestore.config.secretKeyFile: missing"),
        ("endpoint: http://m, secretKeyFile: a", "spec.filestore.config.accessKeyFile: missing"),
        ("endpoint: http://m, prefix: ../b", "spec.filestore.config.prefix: not a prefix of keys"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_refused(config: str, told: str) -> None:
    with pytest.raises(ConfigFaultsError) as refused:
        load(f"filestore: {{type: MINIO, config: {{bucket: b, {config}}}}}\n")
    assert told in str(refused.value)


@pytest.mark.parametrize("bucket", ["a b", "a/b", "..", "a?b", "ä"])
def test_a_name_that_is_none_of_a_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(ConfigFaultsError, match=r"config\.bucket: not the name of a bucket"):
        load(f"filestore: {{type: S3, config: {{bucket: '{bucket}', region: c}}}}\n")


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9000", "https://[::1]:9000/s3", "http://m"])
def test_an_address_of_a_bucket_is_taken(endpoint: str) -> None:
    load(f"filestore: {{type: MINIO, config: {{bucket: my.logs_1, endpoint: '{endpoint}'}}}}\n")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("roleARN: r", "roleARN: has no effect without tokenFile"),
        ("tokenFile: t", "tokenFile: has no effect without roleARN"),
        (
            "roleARN: r, tokenFile: t, profile: p",
            "profile: has no effect beside roleARN and tokenFile",
        ),
    ],
)
def test_credentials_of_a_bucket_that_are_not_used_are_said(config: str, told: str) -> None:
    loaded = load(f"filestore: {{type: S3, config: {{bucket: b, region: c, {config}}}}}\n")

    assert told in str(loaded.warnings[0])
