# SPDX-License-Identifier: Apache-2.0
"""`pipectl lint` on real files and folders."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipecd_pipectl.cli import cli
from pipecd_runtime import installed_plugins
from pipecd_runtime.installed_plugins import list_installed_plugins

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n"
GOOD = HEAD.format(kind="Application") + "  name: x\n  plugins: {kubernetes: }\n"
BAD = HEAD.format(kind="Application") + "  name: x\n  pipline: {}\n  timeout: 1d\n"


def lint(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["lint", *map(str, arguments)])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.pipecd.yaml").write_text(GOOD)
    return tmp_path


def test_a_good_repository_ends_with_0(repository: Path) -> None:
    result = lint(repository)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 file, 0 errors, 0 warnings\n"


def test_all_faults_of_all_files_are_told_with_their_place(repository: Path) -> None:
    (repository / "bad.pipecd.yaml").write_text(BAD)
    (repository / "shop" / ".pipe.yaml").write_text("kind: x\n")

    result = lint(repository)

    assert result.exit_code == 1
    assert f"{repository}/bad.pipecd.yaml:5:3: spec.pipline: unknown key" in result.stdout
    assert f"{repository}/bad.pipecd.yaml:6:12: spec.timeout: not a duration" in result.stdout
    assert f"{repository}/shop/.pipe.yaml:1:1: apiVersion: missing" in result.stdout
    assert "3 files" in result.stderr


def test_an_unknown_option_of_a_stage_is_a_fault_as_any_unknown_key_is(tmp_path: Path) -> None:
    stage = "{name: WAIT, with: {duration: 5s, durations: 6s}}"
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(GOOD + f"  pipeline:\n    stages: [{stage}]\n")

    result = lint(file)

    assert result.exit_code == 1
    assert "stages[0].with.durations: unknown key (did you mean 'duration'?)" in result.stdout


def test_the_program_ends_with_1_when_something_is_wrong(repository: Path) -> None:
    (repository / "bad.pipecd.yaml").write_text(BAD)
    program = Path(sys.executable).with_name("pipectl")

    for path, code in ((repository, 1), (repository / "shop", 0), (repository / "gone", 2)):
        done = subprocess.run([program, "lint", path], capture_output=True, timeout=60, check=False)
        assert done.returncode == code


def test_programs_get_json(repository: Path) -> None:
    (repository / "bad.pipecd.yaml").write_text(BAD)

    answer = json.loads(lint(repository, "--output", "json").stdout)

    assert answer["files"] == 2
    assert [each["path"] for each in answer["errors"]] == ["spec.pipline", "spec.timeout"]
    assert answer["errors"][0]["hint"] == "did you mean 'pipeline'?"


def test_annotations_name_file_and_line(repository: Path) -> None:
    (repository / "a,b.pipecd.yaml").write_text(BAD)

    lines = lint(repository, "--output", "github").stdout.splitlines()

    assert lines[0].startswith(f"::error file={repository}/a%2Cb.pipecd.yaml,line=5,col=3::")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    result = lint(tmp_path / "gone.yaml")

    assert result.exit_code != 0
    assert "gone.yaml does not exist" in str(result.exception)


def test_what_is_no_yaml_in_the_folder_of_events_is_passed_over(repository: Path) -> None:
    folder = repository / ".pipe"
    folder.mkdir()
    (folder / "README.md").write_text("# Events\n")
    (folder / "events.yaml").write_text(HEAD.format(kind="EventWatcher") + "  events: [{}]\n")

    result = lint(repository)

    assert "events.yaml:4:12: spec.events[0].name: missing" in result.stdout
    assert "README" not in result.stdout


def test_files_of_others_are_left_alone(repository: Path) -> None:
    (repository / "deploy.yaml").write_text("kind: Deployment\n")
    (repository / "broken.yaml").write_text("{{ if }}\n")
    with (repository / "large.json").open("wb") as file:
        file.truncate(10 << 20)

    assert lint(repository).exit_code == 0


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    pipecd.dev/managed-by: piped
    apiVersion: pipecd.dev/v1beta1
"""
FUNCTION = "apiVersion: pipecd.dev/v1beta1\nkind: LambdaFunction\nspec: {name: f, role: r}\n"
JSON_FUNCTION = '{"apiVersion": "pipecd.dev/v1beta1", "kind": "LambdaFunction"}'
CHART = "{{ if .Values.on }}\napiVersion: v1\nmetadata: {labels: {pipecd.dev/x: y}}\n{{ end }}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deployment.yaml", DEPLOYMENT),
        ("two.yaml", f"---{DEPLOYMENT}---{DEPLOYMENT}"),
        ("function.yaml", FUNCTION),
        ("function.json", JSON_FUNCTION),
        ("broken.json", '{"apiVersion": "pipecd.dev/v1beta1", '),
        ("deep.json", '{"pipecd.dev/":' * 100_000),
        ("chart.yaml", CHART),
        ("note.yaml", "text: |\n  apiVersion: pipecd.dev/v1beta1\n  kind: Application\n"),
    ],
)
def test_manifests_with_our_words_are_left_to_their_plugins(
    repository: Path, name: str, text: str
) -> None:
    (repository / name).write_text(text)

    result = lint(repository)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 file, 0 errors, 0 warnings\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("piped.yaml", HEAD.format(kind="Piped"), "spec"),
        ("typo.yaml", HEAD.format(kind="Aplication"), "did you mean 'Application'?"),
        ("kindless.yaml", "apiVersion: pipecd.dev/v1beta1\nspec: {}\n", "kind: missing"),
        ("new.yaml", "apiVersion: pipecd.dev/v2\nkind: Piped\n", "unknown version"),
        ("quoted.yaml", "'apiVersion' : \"pipecd.dev/v1beta1\"\nkind: 'Piped'\n", "spec"),
        ("old.yaml", HEAD.format(kind="KubernetesApp") + "  nmae: x\n", "unknown key"),
        ("broken.yaml", HEAD.format(kind="Piped") + "  - a\n b: {\n", "broken.yaml:"),
        ("piped.json", '{"apiVersion": "pipecd.dev/v1beta1", "kind": "Piped"}', "spec"),
        ("after.yaml", f"---{DEPLOYMENT}---\n{HEAD.format(kind='Piped')}", "after.yaml:"),
    ],
)
def test_a_document_that_says_it_is_ours_is_checked_whatever_its_name(
    repository: Path, name: str, text: str, said: str
) -> None:
    (repository / name).write_text(text)

    result = lint(repository)

    assert result.exit_code == 1
    assert said in result.stdout


def test_a_stage_of_a_plugin_that_is_not_installed_is_told_once(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [each for each in list_installed_plugins() if each.name != "ecs"]
    monkeypatch.setattr(installed_plugins, "list_installed_plugins", lambda: here)
    stages = "[{name: ECS_SYNC}, {name: ECS_CANARY_CLEAN}, {name: WAIT, with: {duration: 5s}}]"
    (repository / "app.pipecd.yaml").write_text(GOOD + f"  pipeline: {{stages: {stages}}}\n")

    result = lint(repository / "app.pipecd.yaml")

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    assert (
        "the stage 'ECS_SYNC' is of the plugin 'ecs', which is not installed here"
        " (the piped must run it: check with --piped and its file)"
    ) in result.stdout
    assert "WAIT" not in result.stdout


@pytest.mark.parametrize(
    ("plugins", "code", "said"),
    [
        (["kubernetes", "wait"], 0, ""),
        (["wait"], 1, "no plugin of the piped offers the stage 'K8S_SYNC' (add the plugin"),
        (["k8s"], 0, "fine if it is another name of k8s"),
    ],
)
def test_the_plugins_of_the_piped_must_offer_the_stages(
    repository: Path, plugins: list[str], code: int, said: str
) -> None:
    piped = repository / "piped.yaml"
    listed = ", ".join(f"{{name: {each}, deployTargets: [{{name: dev}}]}}" for each in plugins)
    piped.write_text(
        HEAD.format(kind="Piped")
        + "  projectID: p\n  pipedID: i\n  apiAddress: localhost:8080\n  pipedKeyFile: /k\n"
        + f"  plugins: [{listed}]\n"
    )
    file = repository / "app.pipecd.yaml"
    file.write_text(
        HEAD.format(kind="Application") + "  name: x\n  pipeline: {stages: [{name: K8S_SYNC}]}\n"
    )

    result = lint(file, "--piped", piped)

    assert result.exit_code == code
    assert said in result.stdout
    assert bool(said) == bool(result.stdout)


def test_an_analysis_template_is_looked_up_in_the_repository(repository: Path) -> None:
    (repository / ".pipe").mkdir()
    (repository / ".pipe" / "analysis.yaml").write_text(
        HEAD.format(kind="AnalysisTemplate")
        + "  metrics:\n    rate: {provider: p, query: q, interval: 1m, expected: {max: 1}}\n"
    )
    (repository / "app.pipecd.yaml").write_text(
        HEAD.format(kind="Application")
        + "  name: x\n  pipeline:\n    stages:\n      - name: ANALYSIS\n        with:\n"
        + "          duration: 1m\n          metrics: [{template: {name: rat}}]\n"
    )

    result = lint(repository)

    assert "there is no analysis template 'rat' (did you mean 'rate'?)" in result.stdout


def test_applications_are_checked_against_their_piped(repository: Path) -> None:
    piped = repository / "piped.yaml"
    piped.write_text(
        HEAD.format(kind="Piped")
        + "  projectID: p\n  pipedID: i\n  apiAddress: localhost:8080\n  pipedKeyFile: /k\n"
        + "  plugins: [{name: k8s, deployTargets: [{name: dev}]}]\n"
    )

    result = lint(repository / "shop", "--piped", piped)

    assert "the piped does not run a plugin 'kubernetes'" in result.stdout


def test_a_file_that_is_far_too_large_is_refused_at_once(tmp_path: Path) -> None:
    large = tmp_path / "app.pipecd.yaml"
    with large.open("wb") as file:
        file.truncate(100 << 20)

    assert "larger than 4 MiB" in str(lint(large).exception)


def test_a_secret_of_a_target_is_looked_for_in_the_file(repository: Path) -> None:
    (repository / "app.pipecd.yaml").write_text(
        HEAD.format(kind="Application")
        + "  name: x\n  plugins: {kubernetes: }\n  encryption:\n"
        + "    encryptedSecrets: {password: aGVsbG8=}\n    decryptionTargets: [a.yaml]\n"
    )
    (repository / "a.yaml").write_text("a: 1\nb: {{ .encryptedSecrets.passwrd }}\n")

    assert f"{repository}/a.yaml:2:" in lint(repository / "app.pipecd.yaml").stdout


SCHEMAS = {
    "pluginConfig": {"type": "object", "properties": {"keep": {"type": "integer"}}},
    "deployTargetConfig": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "applicationConfig": {
        "type": "object",
        "properties": {"mode": {"enum": ["fast", "safe"]}},
        "additionalProperties": False,
    },
    "stages": {
        "HOMEMADE_ROLLOUT": {
            "type": "object",
            "properties": {"share": {"$ref": "#/$defs/Share"}, "names": {"type": "array"}},
            "additionalProperties": False,
            "$defs": {"Share": {"anyOf": [{"type": "integer"}, {"enum": ["all"]}]}},
        }
    },
}


def install(
    site: Path, name: str, description: Mapping[str, object], *, file: str = "schemas.json"
) -> None:
    """Install a plugin of somebody else; to import it would fail."""
    package = site / f"pipecd_plugin_{name}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('lint runs no plugin')")
    (package / file).write_text(json.dumps(description))
    about = site / f"pipecd_plugin_{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pipecd-plugin-{name}\n")
    entry = f"[pipecd.plugins]\n{name} = pipecd_plugin_{name}.plugin:main\n"
    (about / "entry_points.txt").write_text(entry)


@pytest.fixture
def homemade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "homemade", SCHEMAS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_a_package_of_several_plugins_has_a_description_for_each(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "homemade", SCHEMAS, file="homemade.schemas.json")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    text = GOOD + "  plugins: {homemade: {mode: fats}}\n"
    (repository / "app.pipecd.yaml").write_text(text)

    result = lint(repository / "app.pipecd.yaml")

    assert result.exit_code == 1
    assert "spec.plugins.homemade.mode" in result.stdout


@pytest.mark.usefixtures("homemade")
def test_what_belongs_to_an_installed_plugin_is_judged_by_its_schemas(repository: Path) -> None:
    text = (
        "  name: x\n"
        "  pipeline:\n"
        "    stages:\n"
        "      - {name: HOMEMADE_ROLLOUT, with: {share: most, name: a}}\n"
        "      - {name: HOMEMADE_ROLLUOT}\n"
        "      - {name: HOMEMADE_ROLLOUT, with: {share: 5, names: [a]}}\n"
        "  plugins: {homemade: {mode: fats}}\n"
    )
    (repository / "x.pipecd.yaml").write_text(HEAD.format(kind="Application") + text)

    result = lint(repository / "x.pipecd.yaml")

    told = result.stdout.replace(f"{repository}/x.pipecd.yaml:", "")
    assert (
        "7:48: spec.pipeline.stages[0].with.share: expected a number, got the text 'most'" in told
    )
    assert "spec.pipeline.stages[0].with.name: unknown key (did you mean 'names'?)" in told
    assert "'HOMEMADE_ROLLUOT' (did you mean 'HOMEMADE_ROLLOUT'?)" in told
    assert (
        "spec.plugins.homemade.mode: unknown value 'fats' (did you mean 'fast'? one of fast, safe)"
        in told
    )
    assert "stages[2]" not in told


def test_what_an_installed_plugin_says_wins_over_what_is_known_of_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"type": "object", "properties": {"speed": {"type": "integer"}}}
    stages = {"TERRAFORM_SYNC": {**options, "additionalProperties": False}}
    install(tmp_path / "site", "terraform", {"stages": stages, "rollback": ["TERRAFORM_UNDO"]})
    monkeypatch.delitem(sys.modules, "pipecd_plugin_terraform", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    written = "{name: TERRAFORM_SYNC, with: {speed: 1, vars: true}}, {name: TERRAFORM_UNDO}"
    (repository / "x.pipecd.yaml").write_text(GOOD + f"  pipeline: {{stages: [{written}]}}\n")

    told = lint(repository / "x.pipecd.yaml").stdout

    assert "stages[0].with.vars: unknown key" in told
    assert "with.speed" not in told
    assert "stages[1].name: TERRAFORM_UNDO is added by itself (remove the stage)" in told


@pytest.mark.usefixtures("homemade")
def test_so_is_its_part_of_a_piped_file(repository: Path) -> None:
    text = (
        "  projectID: p\n  pipedID: i\n  pipedKeyData: a2V5\n  apiAddress: host:443\n"
        "  plugins:\n"
        "    - name: homemade\n"
        "      config: {keep: many}\n"
        "      deployTargets: [{name: a, config: {}}, {name: b, config: {path: /x, pth: /y}}]\n"
    )
    (repository / "piped.yaml").write_text(HEAD.format(kind="Piped") + text)

    result = lint(repository / "piped.yaml")

    assert "spec.plugins[0].config.keep: expected a number, got the text 'many'" in result.stdout
    assert "spec.plugins[0].deployTargets[0].config.path: missing" in result.stdout
    assert "deployTargets[1].config.pth: unknown key (did you mean 'path'?)" in result.stdout


def test_a_secret_that_a_stage_names_must_be_there(repository: Path) -> None:
    text = (
        "  name: x\n"
        "  encryption: {encryptedSecrets: {password: abc}}\n"
        "  pipeline:\n"
        "    stages:\n"
        "      - name: SCRIPT_RUN\n"
        "        with:\n"
        "          run: echo {{ .encryptedSecrets.passwrd }}\n"
        "          env: {A: '{{ .encryptedSecrets.password | b64enc }}'}\n"
    )
    (repository / "x.pipecd.yaml").write_text(HEAD.format(kind="Application") + text)

    result = lint(repository / "x.pipecd.yaml")

    assert "10:16: spec.pipeline.stages[0].with.run: there is no secret 'passwrd'" in result.stdout
    assert "with.env.A: a stage cannot do more with a secret than name it" in result.stdout


def lint_text(repository: Path, spec: str) -> str:
    """Lints an application file with this spec; returns what it prints of the file."""
    file = repository / "x.pipecd.yaml"
    file.write_text(HEAD.format(kind="Application") + spec)
    return lint(file).output.replace(f"{file}:", "")


def test_options_of_terraform_may_stand_under_input(repository: Path) -> None:
    """Upstream's `migrate` puts them there."""
    told = lint_text(
        repository,
        "  name: x\n"
        "  plugins:\n"
        "    terraform:\n"
        "      quickSync: {}\n"
        "      input:\n"
        "        workspace: dev\n"
        "        vars: [a=b]\n"
        "        commandFlags: {plan: [-parallelism=5]}\n",
    )

    assert "0 errors, 0 warnings" in told


def test_what_stands_under_input_of_terraform_is_judged_too(repository: Path) -> None:
    told = lint_text(
        repository,
        "  name: x\n  plugins: {terraform: {input: {workspaces: dev, createWorkspace: 'yes'}}}\n",
    )

    assert "plugins.terraform.input.workspaces: unknown key (did you mean 'workspace'?)" in told
    assert "input.createWorkspace: expected true or false" in told


@pytest.mark.parametrize("plugin", ["terraform", "cloudrun", "ecs", "lambda", "kubernetes"])
def test_a_switch_of_rollbacks_that_nobody_reads_is_refused(repository: Path, plugin: str) -> None:
    """An author's `false` would be rolled back all the same."""
    told = lint_text(
        repository, f"  name: x\n  plugins: {{{plugin}: {{input: {{autoRollback: false}}}}}}\n"
    )

    assert f"spec.plugins.{plugin}.input.autoRollback: unknown key" in told
    assert "(write spec.planner.autoRollback)" in told


STAGE = (
    "  name: x\n"
    "  pipeline:\n"
    "    stages:\n"
    "      - name: WAIT\n"
    "        {own}\n"
    "        with: {{duration: 5s, timeout: 5m, skipOn: {{paths: [docs/**]}}}}\n"
)


def test_what_migrated_files_keep_under_with_for_older_agents_is_fine(repository: Path) -> None:
    """Upstream's `migrate` copies `timeout` and `skipOn` to the stage, and leaves both there."""
    own = "timeout: 5m\n        skipOn: {paths: [docs/**]}"

    assert "0 errors, 0 warnings" in lint_text(repository, STAGE.format(own=own))


def test_a_timeout_that_stands_only_under_with_is_warned_of(repository: Path) -> None:
    told = lint_text(repository, STAGE.format(own="timeout: 7m"))

    assert "0 errors, 2 warnings" in told
    assert "with.timeout: has no effect under with (write timeout on the stage itself)" in told
    assert "with.skipOn: has no effect under with (write skipOn on the stage itself)" in told
