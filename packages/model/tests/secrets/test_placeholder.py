# SPDX-License-Identifier: Apache-2.0
"""Secrets in commands and variables: replaced exactly, and never read by the shell."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.secrets import BadPlaceholderError, open_command, open_variable
from pipecd_model.secrets.placeholder import names, problems, texts

VALUES = {"password": "s3cret", "my-key": "k3y", "odd": 'it\'s $(rm) "x"\n'}


@pytest.mark.parametrize(
    "written",
    [
        "{{ .encryptedSecrets.password }}",
        "{{.encryptedSecrets.password}}",
        "{{   .encryptedSecrets.password}}",
        "{{\n.encryptedSecrets.password\t}}",
        '{{ index .encryptedSecrets "password" }}',
        "{{index .encryptedSecrets `password`}}",
    ],
)
def test_every_spelling_of_go_is_replaced(written: str) -> None:
    command = open_command(f"login -p {written} now", VALUES)

    assert command.text == "login -p s3cret now"
    assert names(written) == ("password",)


def test_a_name_with_a_dash_is_an_index() -> None:
    assert open_command('echo {{ index .encryptedSecrets "my-key" }}', VALUES).text == "echo k3y"


@pytest.mark.parametrize(
    "command",
    [
        "docker inspect -f '{{.Id}}' web",
        "docker ps --format '{{.Names}}: {{ .Status | upper }}'",
        "kubectl get pods -o go-template='{{range .items}}{{.metadata.name}}{{end}}'",
        "echo ${HOME} {{ }} }} {{ '{{' }} ${{ github.sha }}",
        "echo {{ .attachment.x }} {{ .encryptedSecretsX.password }}",
    ],
)
def test_nothing_else_in_a_command_is_a_template(command: str) -> None:
    assert open_command(command, VALUES).text == command
    assert open_variable(command, VALUES).text == command
    assert names(command) == ()


def test_a_command_shows_as_it_was_written() -> None:
    written = "echo {{ .encryptedSecrets.password }} | sudo -S su"

    command = open_command(written, VALUES)

    assert str(command) == command.written == written
    assert "s3cret" not in repr(command)


def test_names_come_once_and_in_order() -> None:
    text = "{{ .encryptedSecrets.b }} {{ .encryptedSecrets.a }} {{ .encryptedSecrets.b }}"

    assert names(text) == ("b", "a")


@pytest.mark.parametrize(
    "value", ["", "two words", "a'b", 'a"b', "$x", "$(id)", "`id`", "a;b", "a&b", "a|b", "a>b", "*",
              "a?b", "[a]", "{a,b}", "~", "#x", "!x", "a\\b", "a\nb", "a\tb", "(x)", "é", "a\0b"],
)  # fmt: skip
def test_what_a_shell_would_read_is_refused_in_a_command(value: str) -> None:
    with pytest.raises(BadPlaceholderError, match="mean something to a shell") as caught:
        open_command("echo {{ .encryptedSecrets.x }}", {"x": value})

    assert "under env" in caught.value.hint
    assert "{{ .encryptedSecrets.x }}" in caught.value.hint


@given(st.from_regex(r"[A-Za-z0-9_@%+=:,./-]{1,40}", fullmatch=True))
def test_what_is_let_into_a_command_is_one_word_to_the_shell(value: str) -> None:
    command = open_command("printf %s {{ .encryptedSecrets.x }}", {"x": value}).text

    assert shlex.split(command) == ["printf", "%s", value]


def test_a_real_shell_sees_the_value_and_nothing_else() -> None:
    value = "".join(chr(code) for code in range(33, 127) if open_is_plain(chr(code)))
    command = open_command("printf '<%s>' x{{ .encryptedSecrets.x }}", {"x": value}).text

    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)

    assert shown.stdout == f"<x{value}>"


def open_is_plain(value: str) -> bool:
    try:
        open_command("{{ .encryptedSecrets.x }}", {"x": value})
    except BadPlaceholderError:
        return False
    return True


def test_a_variable_takes_any_value() -> None:
    opened = open_variable("a{{ .encryptedSecrets.odd }}b", VALUES)

    assert opened.text == f"a{VALUES['odd']}b"


def test_a_variable_takes_no_null_character() -> None:
    with pytest.raises(BadPlaceholderError, match="null character"):
        open_variable("{{ .encryptedSecrets.x }}", {"x": "a\0b"})


def test_what_a_secret_brings_in_is_not_replaced_again() -> None:
    values = {"a": "{{ .encryptedSecrets.b }}", "b": "deep"}

    assert open_variable("{{ .encryptedSecrets.a }}", values).text == values["a"]


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    with pytest.raises(BadPlaceholderError, match="there is no secret 'passwrd'") as caught:
        open_command("echo {{ .encryptedSecrets.passwrd }}", VALUES)

    assert caught.value.hint == "did you mean 'password'?"


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("{{ .encryptedSecrets.password | b64enc }}", "without functions"),
        ("{{- .encryptedSecrets.password -}}", "without functions and dashes"),
        ("{{ $.encryptedSecrets.password }}", "write {{ .encryptedSecrets.name }}"),
        ("{{ .encryptedSecrets }}", "write {{ .encryptedSecrets.name }}"),
        ("{{ .encryptedSecrets.my-key }}", 'write {{ index .encryptedSecrets "my-key" }}'),
    ],
)
def test_more_than_a_name_is_refused_rather_than_left(written: str, hint: str) -> None:
    (problem,) = problems(f"echo {written}", VALUES)

    assert hint in problem.hint
    with pytest.raises(BadPlaceholderError):
        open_variable(written, VALUES)


def test_all_problems_of_a_text_are_told() -> None:
    text = "{{ .encryptedSecrets.x }} {{ .encryptedSecrets.password }} {{ .encryptedSecrets.y }}"

    assert len(problems(text, VALUES)) == 2


def test_the_texts_of_a_stage_are_found_however_deep() -> None:
    options = {"run": "a", "env": {"X": "b"}, "runs": ["c", {"d": "e"}], "n": 1, "none": None}

    assert list(texts(options)) == [
        (("run",), "a"),
        (("env", "X"), "b"),
        (("runs", 0), "c"),
        (("runs", 1, "d"), "e"),
    ]
