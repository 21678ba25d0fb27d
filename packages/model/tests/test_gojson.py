# SPDX-License-Identifier: Apache-2.0
"""The JSON that the Go implementation writes, to the letter."""

from pipecd_model import gojson
from pipecd_wire.model import common_pb2, deployment_pb2
from pipecd_wire.pipedservice import service_pb2


def written(message: object) -> str:
    return gojson.dumps(gojson.to_value(message))  # type: ignore[arg-type]  # any message


def test_zero_values_are_left_out() -> None:
    deployment = deployment_pb2.Deployment(
        id="d1", status=deployment_pb2.DEPLOYMENT_PENDING, created_at=0
    )

    assert written(deployment) == '{"id":"d1"}'


def test_enums_and_64_bit_numbers_are_numbers() -> None:
    deployment = deployment_pb2.Deployment(
        status=deployment_pb2.DEPLOYMENT_SUCCESS, created_at=1_700_000_000_000
    )

    assert written(deployment) == '{"status":4,"created_at":1700000000000}'


def test_names_are_the_protos_own() -> None:
    metadata = deployment_pb2.DeploymentMetadata(
        shared=deployment_pb2.DeploymentMetadata.KeyValues(keyValues={"b": "2", "a": "1"})
    )

    assert written(metadata) == '{"shared":{"keyValues":{"a":"1","b":"2"}}}'


def test_an_empty_message_that_is_set_is_an_empty_object() -> None:
    path = common_pb2.ApplicationGitPath(repo=common_pb2.ApplicationGitRepository())

    assert written(path) == '{"repo":{}}'


def test_bytes_are_base64_and_angle_brackets_are_escaped() -> None:
    request = service_pb2.PutApplicationSharedObjectRequest(key="a<b>&c", object=b"\x00\xff")

    assert written(request) == r'{"key":"a\u003cb\u003e\u0026c","object":"AP8="}'


def test_lists_keep_their_order() -> None:
    deployment = deployment_pb2.Deployment(
        stages=[deployment_pb2.PipelineStage(id="b"), deployment_pb2.PipelineStage(id="a")]
    )

    assert written(deployment) == '{"stages":[{"id":"b"},{"id":"a"}]}'
