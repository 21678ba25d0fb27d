# SPDX-License-Identifier: Apache-2.0
"""JSON and YAML keep upstream's fields, and say states by name."""

import json

import yaml

from pipecd_model import gojson
from pipecd_pipectl.data import dump_json, dump_yaml, to_data
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, deployment_pb2, piped_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.push import push_pb2

DEPLOYMENT = deployment_pb2.Deployment(
    id="d",
    status=deployment_pb2.DEPLOYMENT_PENDING,
    stages=[deployment_pb2.PipelineStage(id="s", status=deployment_pb2.STAGE_SUCCESS)],
)


def test_upstreams_fields_stay_and_states_get_a_name() -> None:
    answer = pb.ListDeploymentsResponse(deployments=[DEPLOYMENT])

    value = to_data(answer)

    assert value["deployments"][0]["status_name"] == "PENDING"
    assert value["deployments"][0]["stages"][0]["status"] == 2
    assert value["deployments"][0]["stages"][0]["status_name"] == "SUCCESS"
    for added in (value["deployments"][0], value["deployments"][0]["stages"][0]):
        del added["status_name"]
    assert value == gojson.to_value(answer)


def test_states_of_our_own_messages_are_names() -> None:
    item = api_pb2.ListPipedsResponse.Item(
        piped=piped_pb2.Piped(id="p", status=piped_pb2.Piped.ONLINE),
        plugins=[push_pb2.PluginState(name="wait", state=push_pb2.PluginState.READY)],
    )

    value = to_data(item)

    assert value["plugins"] == [{"name": "wait", "state": "READY"}]
    assert (value["piped"]["status"], value["piped"]["status_name"]) == (1, "ONLINE")


def test_a_state_of_a_newer_server_is_its_number() -> None:
    state = application_pb2.ApplicationSyncState()
    state.ParseFromString(b"\x08\x63")

    assert to_data(state) == {"status": 99, "status_name": "99"}


def test_json_is_indented_and_yaml_says_the_same() -> None:
    value = to_data(DEPLOYMENT)

    assert "\n  " in dump_json(value)
    assert json.loads(dump_json(value)) == yaml.safe_load(dump_yaml(value)) == value


def test_yaml_has_no_control_that_a_terminal_obeys() -> None:
    hostile = {"a": "\u202e\x1b[2J\x9b2Jré"}

    text = dump_yaml(hostile)

    assert text.isascii()
    assert "\x1b" not in text
    assert yaml.safe_load(text) == hostile
