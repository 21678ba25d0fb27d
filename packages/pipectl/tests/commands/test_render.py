# SPDX-License-Identifier: Apache-2.0
"""`pipectl render`: an application of the working copy, as its templates become."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipecd_model.config import ConfigFaultsError
from pipecd_model.errors import ConfigError
from pipecd_model.secrets import KeyPair, Sealer
from pipecd_pipectl.cli import cli

PIPECTL = Path(sys.executable).parent / "pipectl"

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  plugins: {{kubernetes: {{}}}}
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          env:
            TOKEN: "{{{{ .encryptedSecrets.{name} }}}}"
          run: docker inspect -f '{{{{.Id}}}}' web
  encryption:
    encryptedSecrets:
      password: {closed}
    decryptionTargets: [secret.yaml]
  attachment:
    sources: {{config: secret.yaml}}
    targets: [task.json]
"""


@pytest.fixture(scope="module")
def pair() -> KeyPair:
    return KeyPair.new(2048)


@pytest.fixture
def folder(pair: KeyPair, tmp_path: Path) -> Path:
    """A repository with one application."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "private.pem").write_bytes(pair.private)
    shop = tmp_path / "apps" / "shop"
    shop.mkdir(parents=True)
    closed = Sealer(pair.public).seal("hunter-22")
    (shop / "app.pipecd.yaml").write_text(APPLICATION.format(closed=closed, name="password"))
    (shop / "secret.yaml").write_text("pw: {{ .encryptedSecrets.password }}\n")
    (shop / "task.json").write_text('{"config": {{ .attachment.config | toJson }}}\n')
    return shop


def render(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["render", str(folder / "app.pipecd.yaml"), *arguments])


def test_secrets_are_masked(folder: Path) -> None:
    done = render(folder)

    assert done.exit_code == 0
    assert done.stdout == (
        '==> secret.yaml <==\npw: ***\n\n==> task.json <==\n{"config": "pw: ***\\n"}\n'
    )


def test_a_key_alone_shows_no_secret(folder: Path) -> None:
    done = render(folder, "--private-key-file", str(folder / "../../private.pem"))

    assert done.exit_code == 0
    assert "hunter" not in done.output
    assert "pw: ***" in done.stdout


def test_secrets_are_shown_on_demand(folder: Path) -> None:
    done = render(folder, "--private-key-file", str(folder / "../../private.pem"), "--show-secrets")

    assert "pw: hunter-22\n" in done.stdout


def test_secrets_are_not_shown_without_a_key(folder: Path) -> None:
    done = render(folder, "--show-secrets")

    assert done.exit_code == 2
    assert "needs --private-key-file" in done.stderr


def test_a_secret_for_another_key_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_bytes(KeyPair.new(2048).private)

    done = render(folder, "--private-key-file", str(tmp_path / "other.pem"))

    assert isinstance(done.exception, ConfigFaultsError)
    (fault,) = done.exception.faults
    assert "the secret 'password' cannot be opened: it was closed for another key" in fault.message
    assert fault.line == 14


def test_both_keys_of_a_change_are_taken(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.pem").write_bytes(KeyPair.new(2048).private)

    done = render(
        folder,
        *("--private-key-file", str(tmp_path / "new.pem")),
        *("--private-key-file", str(tmp_path / "private.pem")),
        "--show-secrets",
    )

    assert "hunter-22" in done.stdout


def test_one_target_is_printed_as_it_becomes(folder: Path) -> None:
    assert render(folder, "--target", "task.json").stdout == '{"config": "pw: ***\\n"}\n'


def test_a_target_that_is_none_is_told_with_those_there_are(folder: Path) -> None:
    done = render(folder, "--target", "x.json")

    assert done.exit_code == 2
    assert "secret.yaml, task.json" in done.stderr


def test_programs_get_json(folder: Path) -> None:
    shown = json.loads(render(folder, "--output", "json").stdout)

    assert shown == {
        "files": {"secret.yaml": "pw: ***\n", "task.json": '{"config": "pw: ***\\n"}\n'}
    }


def test_no_file_is_written(folder: Path) -> None:
    before = {file: file.read_bytes() for file in folder.iterdir()}

    render(folder, "--private-key-file", str(folder / "../../private.pem"), "--show-secrets")

    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_a_secret_that_a_stage_names_and_that_is_not_there_is_told(folder: Path) -> None:
    text = (folder / "app.pipecd.yaml").read_text()
    (folder / "app.pipecd.yaml").write_text(text.replace("Secrets.password", "Secrets.passwrd"))

    done = render(folder)

    assert isinstance(done.exception, ConfigFaultsError)
    (fault,) = done.exception.faults
    assert (fault.line, fault.path) == (10, "spec.pipeline.stages[0].with.env.TOKEN")
    assert fault.hint == "did you mean 'password'?"


def test_a_file_of_the_repository_can_be_named(folder: Path) -> None:
    text = (folder / "app.pipecd.yaml").read_text()
    (folder / "app.pipecd.yaml").write_text(text.replace("[task.json]", "[../task.json]"))
    (folder.parent / "task.json").write_text("{{ .attachment.config }}")

    assert render(folder, "--target", "../task.json").stdout == "pw: ***\n"


def test_a_link_that_leads_out_is_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "passwd"
    outside.write_text("root")
    (folder / "task.json").unlink()
    (folder / "task.json").symlink_to(outside)

    done = render(folder)

    assert isinstance(done.exception, ConfigError)
    assert "leads out" in str(done.exception)


def test_an_application_without_templates_says_so(tmp_path: Path) -> None:
    (tmp_path / "app.pipecd.yaml").write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {plugins: {kubernetes: {}}}\n"
    )

    done = render(tmp_path)

    assert (done.exit_code, done.stdout) == (0, "")
    assert "no file of this application is a template" in done.stderr


def test_what_is_wrong_ends_with_2_and_no_traceback(folder: Path) -> None:
    (folder / "secret.yaml").write_text("a\nb: {{ .encryptedSecrets.passwrd }}\n")

    done = subprocess.run(
        [PIPECTL, "render", folder / "app.pipecd.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr == (
        "error: apps/shop/secret.yaml:2:7: there is no 'passwrd' in .encryptedSecrets"
        " (did you mean 'password'?)\n"
    )
