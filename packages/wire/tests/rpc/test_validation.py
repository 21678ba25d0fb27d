# SPDX-License-Identifier: Apache-2.0
"""What the validator finds, and how it says so. Every single rule is in the conformance tests."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

import pipecd_wire
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import common_pb2, logblock_pb2
from pipecd_wire.options import rules_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc.validation import Violation, check
from pipecd_wire.webservice import service_pb2 as web

Field = descriptor_pb2.FieldDescriptorProto


def add_application(repo_id: str = "r", path: str = "dir") -> api.AddApplicationRequest:
    repo = common_pb2.ApplicationGitRepository(id=repo_id)
    return api.AddApplicationRequest(
        name="a", piped_id="p", git_path=common_pb2.ApplicationGitPath(repo=repo, path=path)
    )


def log_block(log: str = "line") -> logblock_pb2.LogBlock:
    return logblock_pb2.LogBlock(log=log, created_at=1)


def field(name: str, rules: rules_pb2.FieldRules | None = None, **more: Any) -> Field:
    made = Field(name=name, **{"type": Field.TYPE_STRING, "label": Field.LABEL_OPTIONAL} | more)
    if rules is not None:
        made.options.Extensions[rules_pb2.rules].CopyFrom(rules)
    return made


def message_type(*fields: Field) -> Any:
    """A message type `t.Thing` with these fields, in a pool of its own."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    thing = file.message_type.add(name="Thing")
    for number, declared in enumerate(fields, 1):
        declared.number = number
        if declared.proto3_optional:
            declared.oneof_index = len(thing.oneof_decl)
            thing.oneof_decl.add(name=f"_{declared.name}")
        thing.field.append(declared)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Thing"))


NOT_EMPTY = rules_pb2.FieldRules(string=rules_pb2.StringRules(min_len=1))


def string_in(*values: str) -> rules_pb2.FieldRules:
    rules = rules_pb2.FieldRules()
    getattr(rules.string, "in").extend(values)
    return rules


def matching(pattern: str) -> rules_pb2.FieldRules:
    return rules_pb2.FieldRules(string=rules_pb2.StringRules(pattern=pattern))


def test_a_message_that_keeps_its_rules_passes() -> None:
    assert check(add_application()) is None


def test_a_message_type_without_any_rule_passes() -> None:
    assert check(web.ListPipedsRequest()) is None


def test_a_violation_names_the_way_to_the_field_and_the_rule() -> None:
    assert check(add_application(repo_id="")) == Violation(
        field="git_path.repo.id", rule="must have at least 1 character(s) (string.min_len 1)"
    )


def test_a_violation_reads_as_one_line() -> None:
    violation = Violation(field="git_path.repo.id", rule="must be set (message.required)")

    assert str(violation) == "git_path.repo.id: must be set (message.required)"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (
            api.AddApplicationRequest(name="a", piped_id="p"),
            "git_path: must be set (message.required)",
        ),
        (add_application(path="/etc"), "git_path.path: must match '^[^/].+$' (string.pattern)"),
        (
            web.UpdatePipedDesiredVersionRequest(version="1.0", piped_ids=["p"]),
            "version: must start with 'v' (string.prefix)",
        ),
        (
            piped.ReportDeploymentStatusChangedRequest(deployment_id="d"),
            "status: must be one of DEPLOYMENT_RUNNING, DEPLOYMENT_ROLLING_BACK (enum.in)",
        ),
        (
            api.RenameApplicationConfigFileRequest(
                application_ids=["a"] * 51, new_filename="app.pipecd.yaml"
            ),
            "application_ids: must have at most 50 item(s) (repeated.max_items 50)",
        ),
        (
            api.UpdateApplicationDeployTargetsRequest(application_id="a"),
            "deploy_targets_by_plugin: must have at least 1 pair(s) (map.min_pairs 1)",
        ),
        (
            plugin_pb2.ReadyRequest(name="p", pid=1),
            "port: must be greater than 0 (int32.gt 0)",
        ),
        (
            plugin_pb2.StageConfig(name="WAIT", index=-1),
            "index: must be at least 0 (int32.gte 0)",
        ),
        (
            message_type(field("name", string_in("a", "b")))(name="c"),
            "name: must be one of 'a', 'b' (string.in)",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_each_kind_of_rule_is_said_in_words(request_: Message, says: str) -> None:
    assert str(check(request_)) == says


def test_a_number_without_a_name_is_refused_where_only_named_ones_are_allowed() -> None:
    request = add_application()
    request.kind = 99  # type: ignore[assignment]

    assert str(check(request)) == "kind: must be a value of ApplicationKind (enum.defined_only)"


def test_an_item_is_named_by_its_index() -> None:
    request = piped.ReportStageLogsRequest(
        deployment_id="d", stage_id="s", blocks=[log_block(), log_block(), log_block("")]
    )

    violation = check(request)

    assert violation is not None
    assert violation.field == "blocks[2].log"


def test_a_message_in_a_map_is_named_by_its_key() -> None:
    response = api.ListStageLogsResponse(
        stage_logs={"s1": api.StageLog(blocks=[log_block()]), "s2": api.StageLog()}
    )
    response.stage_logs["s2"].blocks.append(log_block(""))

    violation = check(response)

    assert violation is not None
    assert violation.field == "stage_logs['s2'].blocks[0].log"


def test_a_key_of_a_map_is_told_from_its_value() -> None:
    wrong_key = api.RegisterEventRequest(name="n", data="d", contexts={"a_b": "v"})
    wrong_value = api.RegisterEventRequest(name="n", data="d", labels={"k": ""})

    assert str(check(wrong_key)) == (
        "contexts['a_b']: key must match '^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$' (map.keys.string.pattern)"
    )
    assert str(check(wrong_value)) == (
        "labels['k']: must have at least 1 character(s) (map.values.string.min_len 1)"
    )


def test_a_long_key_is_cut_short_in_the_violation() -> None:
    """It goes into a status message, and one that is too long would lose the whole answer."""
    request = api.RegisterEventRequest(name="n", data="d", labels={"k" * 100_000: ""})

    assert len(str(check(request))) < 200


def test_a_message_that_is_not_set_is_not_looked_into() -> None:
    held = field("held", type=Field.TYPE_MESSAGE, type_name=".t.Thing")
    thing = message_type(field("name", NOT_EMPTY), held)

    assert check(thing(name="outer")) is None


def test_a_message_type_may_hold_itself() -> None:
    held = field("held", type=Field.TYPE_MESSAGE, type_name=".t.Thing")
    thing = message_type(held, field("name", NOT_EMPTY))

    violation = check(thing(name="a", held=thing(name="b", held=thing(name=""))))

    assert violation is not None
    assert violation.field == "held.held.name"


def test_an_optional_value_keeps_its_rule_only_when_set() -> None:
    thing = message_type(field("name", NOT_EMPTY, proto3_optional=True))

    assert check(thing()) is None
    assert check(thing(name="a")) is None
    assert check(thing(name="")) is not None


def test_lengths_are_counted_in_characters() -> None:
    thing = message_type(
        field("name", rules_pb2.FieldRules(string=rules_pb2.StringRules(min_len=3)))
    )

    assert check(thing(name="äöü")) is None
    assert check(thing(name="äö")) is not None


@pytest.mark.parametrize(
    ("pattern", "value", "passes"),
    [
        ("^a.c$", "abc", True),
        ("^a.c$", "abc\n", False),
        ("b", "abc", True),
        (r"^\d+$", "1", True),
        (r"^\d+$", "\N{ARABIC-INDIC DIGIT ONE}", False),
        (r"^\$[$]$", "$$", True),
        (r"^[]$]$", "$", True),
    ],
)
def test_a_pattern_is_read_as_re2_reads_it(pattern: str, value: str, passes: bool) -> None:
    thing = message_type(field("name", matching(pattern)))

    assert (check(thing(name=value)) is None) is passes


def test_types_of_one_name_from_two_pools_keep_their_own_rules() -> None:
    strict, loose = message_type(field("name", NOT_EMPTY)), message_type(field("name"))

    assert check(strict()) is not None
    assert check(loose()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        field("misplaced", NOT_EMPTY, type=Field.TYPE_BOOL),
        field("misplaced", NOT_EMPTY, type=Field.TYPE_INT64),
        field("misplaced", NOT_EMPTY, label=Field.LABEL_REPEATED),
    ],
    ids=["bool", "int64", "repeated string"],
)
def test_a_rule_that_does_not_fit_its_field_is_refused(wrong: Field) -> None:
    thing = message_type(wrong)

    with pytest.raises(TypeError, match=r"t\.Thing\.misplaced"):
        check(thing())


def test_every_message_of_our_protos_has_rules_that_fit() -> None:
    folder = Path(pipecd_wire.__path__[0])
    names = [
        ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        for path in folder.rglob("*_pb2.py")
    ]
    descriptors = [
        descriptor
        for name in names
        for descriptor in importlib.import_module(name).DESCRIPTOR.message_types_by_name.values()
    ]

    for descriptor in descriptors:
        check(message_factory.GetMessageClass(descriptor)())

    assert len(descriptors) > 300
