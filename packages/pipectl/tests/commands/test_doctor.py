# SPDX-License-Identifier: Apache-2.0
"""`pipectl doctor`: what the answers of a control plane become."""

import json

import pytest
from click.testing import CliRunner, Result

from pipecd_pipectl.cli import cli
from pipecd_pipectl.doctor.control_plane import check_agents, check_applications
from pipecd_runtime.checkup import CheckRow, Verdict
from pipecd_runtime.ports import pick_port
from pipecd_wire.model.application_pb2 import INVALID_CONFIG, SYNCED, UNKNOWN, Application
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipecd.api.api_pb2 import ListPipedsResponse
from pipecd_wire.pipecd.push.push_pb2 import PluginState

Item = ListPipedsResponse.Item
ENVIRONMENT = {
    "XDG_CONFIG_HOME": "/nonexistent",
    "PIPECTL_ADDRESS": "",
    "PIPECTL_API_KEY": "",
    "PIPECTL_API_KEY_FILE": "",
}


def doctor(*arguments: str, **environment: str) -> Result:
    runner = CliRunner(env={**ENVIRONMENT, "COLUMNS": "80", **environment})
    return runner.invoke(cli, ["doctor", *arguments])


def agent(*plugins: PluginState, **fields: object) -> Item:
    known = {"id": "id-1", "name": "dev", "status": Piped.ONLINE, "version": "v1", "started_at": 1}
    piped = Piped(**{**known, **fields})  # type: ignore[arg-type]
    piped.repositories.add(id="r")
    return Item(piped=piped, plugins=plugins)


READY = PluginState(name="wait", state=PluginState.READY, version="0.1")


def verdicts(rows: list[CheckRow]) -> list[tuple[str, str]]:
    return [(row.subject, row.verdict.value) for row in rows]


def test_a_project_without_agents_is_told_how_to_get_one() -> None:
    (row,) = check_agents([])

    assert row.verdict is Verdict.FAIL
    assert "pipectl piped register" in row.next_step


def test_an_agent_that_works_has_a_row_with_its_version_and_one_per_plugin() -> None:
    rows = check_agents([agent(READY)])

    assert verdicts(rows) == [("agent dev", "ok"), ("plugin wait of dev", "ok")]
    assert "online, v1, started" in rows[0].text


@pytest.mark.parametrize(
    ("fields", "verdict", "text", "step"),
    [
        ({"status": Piped.OFFLINE}, "fail", "offline", "pipectl piped disable dev"),
        ({"status": Piped.UNKNOWN, "started_at": 0}, "fail", "never connected", "piped check"),
        ({"disabled": True}, "warn", "disabled", "pipectl piped enable dev"),
    ],
)
def test_an_agent_that_does_not_work_says_what_to_do(
    fields: dict[str, object], verdict: str, text: str, step: str
) -> None:
    (row,) = check_agents([agent(READY, **fields)])

    assert row.verdict == verdict
    assert text in row.text
    assert step in row.next_step


@pytest.mark.parametrize(
    ("plugin", "verdict", "text"),
    [
        (
            PluginState(
                name="x", state=PluginState.FAILED, reason="it ends at once", last_output=["a", "b"]
            ),
            "fail",
            "failed: it ends at once (b)",
        ),
        (PluginState(name="x", state=PluginState.FETCHING, reason="30 %"), "warn", "fetching: 30"),
        (PluginState(name="x", state=PluginState.STARTING), "warn", "starting"),
    ],
)
def test_a_plugin_that_is_not_ready_says_why(plugin: PluginState, verdict: str, text: str) -> None:
    row = check_agents([agent(plugin)])[1]

    assert row.verdict == verdict
    assert text in row.text
    restart = "pipectl piped restart-plugin dev --plugin x"
    assert (row.next_step == restart) == (verdict == "fail")


def test_an_agent_that_is_gone_tells_when_it_was_seen_last() -> None:
    item = agent(READY, status=Piped.OFFLINE)
    item.last_seen_at = 1_700_000_000

    assert check_agents([item])[0].text.startswith("offline, last seen 2023-11-1")


def test_a_name_that_a_shell_would_read_anew_is_not_in_a_command() -> None:
    (row,) = check_agents([agent(READY, name="a; rm -rf /", disabled=True)])

    assert row.next_step == "pipectl piped enable id-1"
    odd = application("a", INVALID_CONFIG, "bad")
    odd.git_path.path = "$(x)/"
    assert check_applications([odd])[0].next_step == "pipectl lint '$(x)/app.pipecd.yaml'"


def test_alarms_and_missing_plugins_are_failures() -> None:
    item = agent()
    item.alarms.append("two agents are at work under this id")

    assert verdicts(check_agents([item])) == [
        ("agent dev", "ok"),
        ("agent dev", "fail"),
        ("agent dev", "fail"),
    ]


def test_an_agent_of_the_older_generation_needs_no_plugin() -> None:
    item = agent()
    item.piped.platform_providers.add(name="k8s", type="KUBERNETES")

    assert verdicts(check_agents([item])) == [("agent dev", "ok")]


def application(name: str, status: int, short: str = "", reason: str = "") -> Application:
    made = Application(id=name, name=name)
    made.git_path.repo.id = "r"
    made.git_path.path = "shop"
    made.git_path.config_filename = "app.pipecd.yaml"
    made.sync_state.status = status  # type: ignore[assignment]
    made.sync_state.short_reason = short
    made.sync_state.reason = reason
    return made


def test_a_repository_that_cannot_be_reached_is_told_once() -> None:
    away = "the git repository cannot be reached"
    rows = check_applications(
        [
            *(application(name, UNKNOWN, away, "fetch failed: no route\nmore") for name in "abcd"),
            application("e", SYNCED),
        ]
    )

    assert verdicts(rows) == [("repository r", "fail"), ("applications", "ok")]
    assert rows[0].text == f"{away}: fetch failed: no route (for a, b, c, …)"
    assert rows[1].text == "1 of 5 can be deployed"


def test_a_broken_application_file_is_told_with_the_command_that_shows_it() -> None:
    rows = check_applications([application("a", INVALID_CONFIG, "cannot be used", "3:1: bad")])

    assert rows[0].subject == "application a"
    assert rows[0].next_step == "pipectl lint shop/app.pipecd.yaml"


def test_many_troubles_are_counted() -> None:
    rows = check_applications([application(f"a{i}", INVALID_CONFIG, "bad") for i in range(25)])

    assert len(rows) == 12
    assert rows[10].text == "15 more have trouble"


def test_without_settings_it_says_which_are_missing() -> None:
    done = doctor()

    assert done.exit_code == 1
    assert "fail  settings" in done.output
    assert "PIPECTL_ADDRESS" in done.output


def test_an_address_where_nobody_listens_is_a_failure_in_json_too() -> None:
    address = f"127.0.0.1:{pick_port()}"

    done = doctor("--address", address, "--api-key", "a.b", "--insecure", "--output", "json")

    told = json.loads(done.output)
    assert done.exit_code == 1
    assert told["ok"] is False
    assert [(each["check"], each["verdict"]) for each in told["checks"]] == [
        ("name", "ok"),
        ("port", "fail"),
        ("git", "ok"),
    ]
