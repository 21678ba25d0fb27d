# SPDX-License-Identifier: Apache-2.0
"""Files with secrets and attachments: what they become, in which order, and what is refused."""

from collections.abc import Mapping

import pytest

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, load_application
from pipecd_model.errors import ConfigError, SourceError
from pipecd_model.secrets import CannotOpenError, PreparedFiles, prepare

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  plugins: {kubernetes: {}}\n"


def application(body: str) -> tuple[ApplicationConfig, str]:
    text = HEAD + body
    return load_application(text, file="app.pipecd.yaml").config, text


def opened(closed: str) -> str:
    """Stands for a key: a closed secret is its text in capitals."""
    if not closed.isupper():
        raise CannotOpenError("it was closed for another key", hint="close it again")
    return closed.lower()


def prepared(body: str, files: Mapping[str, str | bytes], *, folder: str = "") -> PreparedFiles:
    config, text = application(body)

    def read(path: str) -> bytes | None:
        content = files.get(path)
        return content.encode() if isinstance(content, str) else content

    return prepare(
        config, file="app.pipecd.yaml", read=read, open_secret=opened, folder=folder, text=text
    )


def faults(body: str, files: Mapping[str, str | bytes], *, folder: str = "") -> list[str]:
    with pytest.raises(ConfigFaultsError) as caught:
        prepared(body, files, folder=folder)
    return [str(fault) for fault in caught.value.faults]


SECRETS = """
  encryption:
    encryptedSecrets: {password: S3CRET-PASSWORD}
    decryptionTargets: [secret.yaml]
"""

BOTH = """
  encryption:
    encryptedSecrets: {password: S3CRET-PASSWORD}
    decryptionTargets: [config.env]
  attachment:
    sources: {config: config.env}
    targets: [task.json]
"""


def test_a_secret_is_put_into_its_target() -> None:
    result = prepared(SECRETS, {"secret.yaml": "pw: {{ .encryptedSecrets.password }}\n"})

    assert result.files == {"secret.yaml": b"pw: s3cret-password\n"}
    assert result.secrets == {"password": "s3cret-password"}


def test_an_attachment_is_put_into_its_target() -> None:
    body = "\n  attachment:\n    sources: {config: c.txt}\n    targets: [a.yaml, b/b.yaml]\n"
    files = {
        "c.txt": "level=info",
        "a.yaml": "x: {{ .attachment.config }}",
        "b/b.yaml": "{{ .attachments.config | b64enc }}",
    }

    assert prepared(body, files).files == {
        "a.yaml": b"x: level=info",
        "b/b.yaml": b"bGV2ZWw9aW5mbw==",
    }


def test_a_file_with_a_secret_in_it_can_be_attached() -> None:
    files = {
        "config.env": "PW={{ .encryptedSecrets.password }}",
        "task.json": '{"env": {{ .attachment.config | toJson }}}',
    }

    assert prepared(BOTH, files).files == {
        "config.env": b"PW=s3cret-password",
        "task.json": b'{"env": "PW=s3cret-password"}',
    }


def test_both_steps_see_secrets_and_attachments() -> None:
    body = BOTH.replace("sources: {config: config.env}", "sources: {name: name.txt}")
    files = {
        "name.txt": "shop",
        "config.env": "{{ .attachment.name }}={{ .encryptedSecrets.password }}",
        "task.json": "{{ .encryptedSecrets.password }}={{ .attachment.name }}",
    }

    assert prepared(body, files).files == {
        "config.env": b"shop=s3cret-password",
        "task.json": b"s3cret-password=shop",
    }


def test_a_file_that_both_steps_name_is_rendered_once() -> None:
    body = BOTH.replace("targets: [task.json]", "targets: [config.env]").replace(
        "sources: {config: config.env}", "sources: {name: name.txt}"
    )
    files = {
        "name.txt": "{{ raw }}",
        "config.env": "{{ .encryptedSecrets.password }} {{ .attachment.name }}",
    }

    assert prepared(body, files).files == {"config.env": b"s3cret-password {{ raw }}"}


def test_a_file_that_both_steps_name_sees_what_was_opened_and_can_be_attached() -> None:
    body = """
  encryption:
    encryptedSecrets: {password: S3CRET-PASSWORD}
    decryptionTargets: [both.txt, opened.txt]
  attachment:
    sources: {opened: opened.txt, both: both.txt}
    targets: [both.txt, last.txt]
"""
    files = {
        "opened.txt": "<{{ .encryptedSecrets.password }}>",
        "both.txt": "[{{ .attachment.opened }}]",
        "last.txt": "({{ .attachment.both }})",
    }

    assert prepared(body, files).files == {
        "opened.txt": b"<s3cret-password>",
        "both.txt": b"[<s3cret-password>]",
        "last.txt": b"([<s3cret-password>])",
    }


def test_bytes_that_are_no_text_can_be_attached() -> None:
    body = "\n  attachment:\n    sources: {image: i.png}\n    targets: [a.yaml]\n"

    result = prepared(body, {"i.png": b"\x89PNG\xff", "a.yaml": "{{ .attachment.image | b64enc }}"})

    assert result.files == {"a.yaml": b"iVBOR/8="}


def test_an_application_without_either_has_nothing_to_do() -> None:
    assert prepared("", {}) == PreparedFiles()


def test_secrets_that_only_stages_name_are_not_opened() -> None:
    body = "\n  encryption:\n    encryptedSecrets: {password: not-closed-for-us}\n"

    assert prepared(body, {}) == PreparedFiles()


def test_what_is_prepared_does_not_show() -> None:
    result = prepared(SECRETS, {"secret.yaml": "pw: {{ .encryptedSecrets.password }}\n"})

    assert "s3cret" not in repr(result)


def test_paths_start_at_the_applications_folder() -> None:
    files = {"apps/shop/secret.yaml": "{{ .encryptedSecrets.password }}"}

    assert prepared(SECRETS, files, folder="apps/shop").files.keys() == files.keys()


def test_paths_stay_in_what_is_read() -> None:
    body = SECRETS.replace("secret.yaml", "../base/secret.yaml")
    files = {"apps/base/secret.yaml": "{{ .encryptedSecrets.password }}"}

    assert prepared(body, files, folder="apps/shop").files.keys() == files.keys()
    (alone,) = faults(body, files)
    assert "'../base/secret.yaml' leads out of the application's folder" in alone
    (out,) = faults(SECRETS.replace("secret.yaml", "../../../etc/x"), files, folder="apps/shop")
    assert "leads out of the repository" in out


@pytest.mark.parametrize("path", ["..", "a/../../x", "./../x", ".", "a/.."])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    (fault,) = faults(SECRETS.replace("secret.yaml", path), {path: "x"})

    assert "leads out of the application's folder" in fault
    assert fault.startswith("app.pipecd.yaml:8:25: spec.encryption.decryptionTargets[0]: ")


def test_a_missing_target_is_told_with_its_line() -> None:
    (fault,) = faults(SECRETS, {})

    assert fault == (
        "app.pipecd.yaml:8:25: spec.encryption.decryptionTargets[0]:"
        " the decryption target 'secret.yaml' is not there"
        " (paths start at the application's folder)"
    )


def test_all_that_is_missing_is_told_at_once() -> None:
    found = faults(BOTH, {})

    assert len(found) == 3
    assert "the attachment 'config' is not there: 'config.env'" in found[1]
    assert "the attachment target 'task.json' is not there" in found[2]


def test_a_secret_that_cannot_be_opened_is_told_by_name() -> None:
    body = SECRETS.replace("S3CRET-PASSWORD", "closed-text")

    (fault,) = faults(body, {"secret.yaml": ""})

    assert (
        "spec.encryption.encryptedSecrets.password: the secret 'password' cannot be opened" in fault
    )
    assert fault.startswith("app.pipecd.yaml:7:34: ")
    assert "closed-text" not in fault


def test_a_secret_directly_under_spec_is_told_with_its_line() -> None:
    body = (
        "  encryptedSecrets: {password: closed-text}\n"
        "  attachment:\n    sources: {c: c.txt}\n    targets: [c.txt]\n"
    )

    (fault,) = faults(body, {"c.txt": ""})

    assert fault.startswith("app.pipecd.yaml:5:32: ")


def test_without_a_key_files_with_secrets_are_refused() -> None:
    config, text = application(SECRETS)

    with pytest.raises(ConfigError, match="this piped cannot open secrets"):
        prepare(config, file="app.pipecd.yaml", read=lambda _: b"", open_secret=None, text=text)


def test_without_a_key_attachments_work() -> None:
    config, _ = application("\n  attachment:\n    sources: {c: c.txt}\n    targets: [c.txt]\n")

    result = prepare(config, file="a", read=lambda _: b"{{ 1 }}", open_secret=None)

    assert result.files == {"c.txt": b"1"}


def test_all_templates_that_are_wrong_are_told_at_once() -> None:
    body = SECRETS.replace("[secret.yaml]", "[a.yaml, b.yaml, c.yaml]")
    files: dict[str, str | bytes] = {
        "a.yaml": "x\n{{ .encryptedSecrets.passwrd }}",
        "b.yaml": "{{ .attachment.x }",
        "c.yaml": b"\xff\xfe",
    }

    found = faults(body, files)

    assert found == [
        "c.yaml: not UTF-8 at byte 0 (only a text can be a template; attach it to one with b64enc)",
        "b.yaml:1:1: the action is opened here and never closed (write }} at its end)",
        "a.yaml:2:4: there is no 'passwrd' in .encryptedSecrets (did you mean 'password'?)",
    ]


def test_a_secret_in_a_message_is_masked() -> None:
    (fault,) = faults(SECRETS, {"secret.yaml": "{{ fail .encryptedSecrets.password }}"})

    assert "s3cret" not in fault
    assert "***" in fault


def test_what_the_reader_refuses_is_passed_on() -> None:
    config, _ = application(SECRETS)

    def read(_: str) -> bytes:
        raise SourceError("the link leads out of the repository")

    with pytest.raises(SourceError):
        prepare(config, file="app.pipecd.yaml", read=read, open_secret=opened)


def test_many_faults_are_told_as_quickly_as_one() -> None:
    """Each has its line, for which the file is read; not once for each of them."""
    count = 3000
    targets = "".join(f"    - missing-{number}\n" for number in range(count))

    told = faults(f"  attachment:\n    sources: {{a: a}}\n    targets:\n{targets}", {"a": ""})

    assert len(told) == count
    assert told[-1].startswith(f"app.pipecd.yaml:{count + 7}:7:")


def test_templates_share_the_time_of_their_application() -> None:
    slow = "{{ range until 99999 }}{{ $x := list 1 2 3 }}{{ end }}"
    names = [f"slow-{number}" for number in range(200)]
    body = f"  attachment:\n    sources: {{a: a}}\n    targets: [{', '.join(names)}]\n"

    told = faults(body, {"a": "", **dict.fromkeys(names, slow)})

    assert any("the templates take longer than 5s together" in each for each in told)
    assert len(told) < len(names)
