# SPDX-License-Identifier: Apache-2.0
"""`pipectl migrate` on real files."""

from pathlib import Path

from click.testing import CliRunner, Result

from pipecd_pipectl.cli import cli

OLDER = """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  # where
  input: {namespace: a}
"""
TODAY = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
metadata:
  labels:
    kind: KUBERNETES
spec:
  plugins:
    kubernetes:
      # where
      input: {namespace: a}
"""


def migrate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["migrate", *map(str, arguments)])


def test_a_diff_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(OLDER)

    result = migrate("application-config", "--diff", file)

    assert result.exit_code == 0
    assert "-kind: KubernetesApp\n+kind: Application\n" in result.stdout
    assert file.read_text() == OLDER
    assert [each.name for each in tmp_path.iterdir()] == ["app.pipecd.yaml"]


def test_the_original_is_kept_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(OLDER)

    assert migrate("application-config", "--config-files", file).exit_code == 0
    assert file.read_text() == TODAY
    assert (tmp_path / "app.pipecd.yaml.old").read_text() == OLDER
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_is_gone_through_and_files_of_today_are_left_alone(tmp_path: Path) -> None:
    for name, text in (("a", OLDER), ("b", TODAY)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.pipecd.yaml").write_text(text)

    result = migrate("application-config", "--dirs", tmp_path)

    assert result.exit_code == 0
    assert (tmp_path / "a" / "app.pipecd.yaml").read_text() == TODAY
    assert not (tmp_path / "b" / "app.pipecd.yaml.old").exists()


def test_one_file_that_cannot_be_migrated_does_not_stop_the_others(tmp_path: Path) -> None:
    bad, good = tmp_path / "a.pipecd.yaml", tmp_path / "b.pipecd.yaml"
    bad.write_text("kind: KubernetesApp\n")
    good.write_text(OLDER)

    result = migrate("application-config", bad, good)

    assert result.exit_code == 1
    assert "apiVersion: missing" in result.stderr
    assert good.read_text() == TODAY
    assert bad.read_text() == "kind: KubernetesApp\n"


def test_providers_of_a_piped_become_deploy_targets(tmp_path: Path) -> None:
    file = tmp_path / "piped.yaml"
    file.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  projectID: p\n  pipedID: i\n"
        "  apiAddress: localhost:8080\n  pipedKeyFile: /k\n"
        "  platformProviders:\n    - name: dev\n      type: KUBERNETES\n"
    )

    result = migrate("piped-config", file)

    assert result.exit_code == 0
    assert "    - name: kubernetes\n      deployTargets:\n        - name: dev\n" in file.read_text()


def test_a_call_without_files_is_wrong() -> None:
    assert migrate("application-config").exit_code == 2
