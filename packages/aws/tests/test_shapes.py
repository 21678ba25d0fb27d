# SPDX-License-Identifier: Apache-2.0
"""Definitions of people, brought into the shape of the API."""

from typing import Any

import pytest

from pipecd_aws import UnfitValueError, fit


@pytest.fixture(scope="module")
def shape() -> Any:
    import botocore.session  # noqa: PLC0415 - it takes a while

    model = botocore.session.Session().get_service_model("ecs")
    return model.operation_model("RegisterTaskDefinition").input_shape


def test_names_may_be_written_in_any_case(shape: Any) -> None:
    given = {"Family": "web", "ContainerDefinitions": [{"NAME": "web", "PortMappings": []}]}

    assert fit(given, shape) == (
        {"family": "web", "containerDefinitions": [{"name": "web", "portMappings": []}]},
        [],
    )


def test_numbers_and_texts_become_what_the_api_takes(shape: Any) -> None:
    given = {"cpu": 256, "containerDefinitions": [{"memory": "128", "essential": "true"}]}

    assert fit(given, shape)[0] == {
        "cpu": "256",
        "containerDefinitions": [{"memory": 128, "essential": True}],
    }


def test_keys_of_maps_keep_their_case(shape: Any) -> None:
    given = {"containerDefinitions": [{"dockerLabels": {"My.Label": 1}}]}

    assert fit(given, shape)[0]["containerDefinitions"][0]["dockerLabels"] == {"My.Label": "1"}


def test_unknown_fields_are_named(shape: Any) -> None:
    fitted, unknown = fit({"family": "web", "colour": 1, "volumes": [{"nmae": "x"}]}, shape)

    assert fitted == {"family": "web", "volumes": [{}]}
    assert unknown == ["colour", "volumes[0].nmae"]


def test_nothing_given_is_nothing_sent(shape: Any) -> None:
    assert fit({"family": "web", "cpu": None}, shape) == ({"family": "web"}, [])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"family": {"a": 1}}, "family: a text belongs here"),
        ({"volumes": {"name": "x"}}, "volumes: a list belongs here"),
        ({"containerDefinitions": [{"memory": "lots"}]}, r"\[0\].memory: a number belongs here"),
        ({"containerDefinitions": ["web"]}, r"containerDefinitions\[0\]: an object belongs"),
    ],
)
def test_a_wrong_type_names_the_field(shape: Any, given: Any, sentence: str) -> None:
    with pytest.raises(UnfitValueError, match=sentence):
        fit(given, shape)


def test_endless_nesting_is_refused(shape: Any) -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"containerDefinitions": [deep]}

    assert fit(deep, shape)[1], "fields below the API's own are unknown, not followed"
