# SPDX-License-Identifier: Apache-2.0
"""A secret that is used everywhere, and looked for everywhere: it is where it is needed only.

Looked through afterwards: every log, status, piece of metadata and answer of the control plane, its
database files, the config report and metrics of piped, its log and all that is left in its data
folder, and while it runs the command line of every process.
"""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.secrets import KeyPair, Sealer
from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import OUT_OF_SYNC, SYNCED, Application
from pipecd_wire.rpc import call

PLANTED = "Pl4nted/secret+value"
ODD = "Planted 'odd' $(touch injected) \"value\"\nof two lines & more"
OLD, NEW = KeyPair.new(1024), KeyPair.new(1024)
LIMIT = 60


def forms(value: str) -> Iterator[bytes]:
    """What must not be found: the value, each line of it, and both in base64."""
    for part in (value, *value.splitlines()):
        yield part.encode()
        yield base64.b64encode(part.encode()).rstrip(b"=")
        yield json.dumps(part)[1:-1].encode()


NEEDLES = [*forms(PLANTED), *forms(ODD)]


def found_in(data: bytes) -> list[bytes]:
    return [needle for needle in NEEDLES if needle in data]


def management(site: PipedSite) -> dict[str, Any]:
    """Keys as they are while they are being changed: one secret is closed for the old one."""
    for name, data in (("new", NEW.private), ("old", OLD.private), ("public", NEW.public)):
        file = site.folder / f"{name}.pem"
        file.touch(mode=0o600)
        file.write_bytes(data)
    config = {
        "privateKeyFile": str(site.folder / "new.pem"),
        "oldPrivateKeyFile": str(site.folder / "old.pem"),
        "publicKeyFile": str(site.folder / "public.pem"),
    }
    return {"type": "KEY_PAIR", "config": config}


ENCRYPTION = {
    "encryptedSecrets": {
        "planted": Sealer(NEW.public).seal(PLANTED),
        "odd": Sealer(OLD.public).seal(ODD),
    },
    "decryptionTargets": ["conf/db.yaml"],
}
ATTACHMENT = {"sources": {"db": "conf/db.yaml"}, "targets": ["conf/task.json"]}
FILES = {
    "app/conf/db.yaml": "password: {{ .encryptedSecrets.planted | quote }}\n"
    "odd: |\n  {{ .encryptedSecrets.odd | nindent 2 }}\n",
    "app/conf/task.json": '{"config": {{ .attachment.db | toJson }}}',
}
SCRIPT = """
set -e
for file in conf/db.yaml conf/task.json; do
  case "$(cat $file)" in *"$PLANTED"*) ;; *) exit 9 ;; esac
done
test "$ODD" = "$(printf '%s' "$ODD")"
printf '%s' "$ODD" > "$RECORD/odd"
echo {{ .encryptedSecrets.planted }} > "$RECORD/planted"
cat conf/db.yaml conf/task.json
echo "plain: {{ .encryptedSecrets.planted }}"
echo "odd: $ODD"
printf '%s' "$PLANTED" | base64
printf 'user:%s' "$PLANTED" | base64 -w0; echo
printf '%s' "$PLANTED" | cut -c1-9 | tr -d '\\n'; sleep 0.4; printf '%s' "$PLANTED" | cut -c10-
echo "err {{ .encryptedSecrets.planted }}" >&2
cp conf/db.yaml copied-by-the-script
touch "$RECORD/running"
while [ ! -e "$RECORD/go" ]; do sleep 0.05; done
echo "failing with $PLANTED" >&2
exit 3
"""


def stages(record: Path) -> list[dict[str, Any]]:
    env = {
        "RECORD": str(record),
        "PLANTED": "{{ .encryptedSecrets.planted }}",
        "ODD": "{{ .encryptedSecrets.odd }}",
    }
    undo = 'echo "undone with $PLANTED {{ .encryptedSecrets.planted }}"'
    return [{"name": "SCRIPT_RUN", "with": {"run": SCRIPT, "env": env, "onRollback": undo}}]


async def exists(file: Path) -> None:
    async with asyncio.timeout(LIMIT):
        while not await asyncio.to_thread(file.exists):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)


def command_lines() -> bytes:
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return b"\n".join(lines)


def files_with_it(*folders: Path) -> list[str]:
    found = []
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                file = Path(path, name)
                if file.is_file() and not file.is_symlink() and found_in(file.read_bytes()):
                    found.append(str(file))
    return found


async def said_about(client: SiteClient, site: PipedSite, deployment: pb.Deployment) -> bytes:
    """Everything that the control plane knows of it."""
    said = [deployment.SerializeToString()]
    for stage in deployment.stages:
        said += [line.encode() for line in await client.log(deployment, stage)]
    application = external.GetApplicationRequest(application_id=deployment.application_id)
    said.append((await call(client.api.GetApplication, application)).SerializeToString())
    piped = external.GetPipedRequest(piped_id=site.piped_id)
    said.append((await call(client.api.GetPiped, piped)).SerializeToString())
    return b"\n".join(said)


async def metrics(port: int) -> bytes:
    def read() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT) as page:
            text: bytes = page.read()
        return text

    return await asyncio.to_thread(read)


async def started(site: PipedSite, client: SiteClient, record: Path, *flags: str) -> str:
    await asyncio.to_thread(record.mkdir)
    site.commit({"README": "an example"})
    site.configure("scriptrun", secretManagement=management(site))
    site.start(*flags)
    site.commit(FILES)
    commit = site.commit_application(
        "app", stages(record), encryption=ENCRYPTION, attachment=ATTACHMENT
    )
    made: str = await client.deploy("app", commit)
    await exists(record / "running")
    return made


async def test_a_planted_secret_is_found_nowhere(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite], tmp_path: Path
) -> None:
    site, record, port = site_of(own_server), tmp_path / "used", pick_port()
    async with site.client() as client:
        made = await started(site, client, record, "--admin-port", str(port))
        lines = await asyncio.to_thread(command_lines)
        numbers = await metrics(port)
        (record / "go").touch()
        ended = await client.completed(made)
        said = await said_about(client, site, ended)
    await site.stop()
    own_server.stop()

    # It was there where it was needed, whole.
    assert ended.status == pb.DEPLOYMENT_FAILURE, ended.status_reason
    assert "exit code 3" in ended.status_reason, ended.status_reason
    assert (record / "odd").read_text() == ODD
    assert (record / "planted").read_text() == f"{PLANTED}\n"
    assert b"password: " in said
    assert b"undone with ***" in said
    # And nowhere else.
    assert found_in(said) == []
    assert found_in(lines) == []
    assert found_in(numbers) == []
    assert found_in(site.log.read_bytes()) == []
    left = files_with_it(site.folder / "data", own_server.folder)
    assert left == []
    assert not await asyncio.to_thread(lambda: list(tmp_path.rglob("injected")))


def pipectl(site: PipedSite, *arguments: str, given: str | None = None) -> str:
    done = subprocess.run(
        [Path(sys.executable).parent / "pipectl", *arguments],
        input=given,
        env={
            **os.environ,
            "PIPECTL_ADDRESS": site.server.address,
            "PIPECTL_API_KEY": site.server.admin_key,
            "PIPECTL_INSECURE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    return done.stdout + done.stderr


async def synced(client: SiteClient, application_id: str, status: int) -> Application:
    """Wait until an application is in sync, or out of it."""
    request = external.GetApplicationRequest(application_id=application_id)
    async with asyncio.timeout(LIMIT):
        while True:
            found = (await call(client.api.GetApplication, request)).application
            if found.sync_state.status == status:
                return found
            await asyncio.sleep(0.05)  # between looks at another process


async def test_nor_in_live_states_differences_and_previews(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite]
) -> None:
    """A plugin that compares files has them open, before and after."""
    site = site_of(own_server)
    site.commit({"README": "an example"})
    target = site.folder / "www"
    site.configure(
        {"name": "files", "deployTargets": [{"name": "web", "config": {"path": str(target)}}]},
        secretManagement=management(site),
    )
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {"name": "app", "plugins": {"files": {}}, "encryption": ENCRYPTION},
    }
    site.commit({**FILES, "app/app.pipecd.yaml": json.dumps(document)})
    site.start("--live-state-interval", "100ms")
    async with site.client() as client:
        made = await client.register("app", files=["web"])
        found = await synced(client, made, SYNCED)
        opened = target / "current" / "conf" / "db.yaml"
        assert PLANTED in opened.read_text()

        opened.write_text(opened.read_text() + f"# edited, {PLANTED}\n")
        await synced(client, made, OUT_OF_SYNC)
        done = found.most_recently_successful_deployment.deployment_id
        ended = await client.completed(done)
        site.git("switch", "--quiet", "--create", "next")
        change = {"app/conf/db.yaml": f"{FILES['app/conf/db.yaml']}more: yes\n"}
        head = site.commit({**change, "app/page.html": "new"})
        site.git("switch", "--quiet", "main")
        preview = ["plan-preview", "--repo-remote-url", str(site.repository), "--base-branch"]
        preview += ["main", "--head-branch", "next", "--head-commit", head]
        said = await said_about(client, site, ended)
        shown = ""
        for arguments in (
            preview,
            ["application", "diff", "--app-id", made],
            ["application", "get", "--live", "--app-id", made],
        ):
            shown += await asyncio.to_thread(pipectl, site, *arguments)
    await site.stop()
    own_server.stop()

    assert "page.html" in shown
    assert "db.yaml" in shown
    assert found_in(shown.encode()) == []
    assert found_in(said) == []
    assert found_in(site.log.read_bytes()) == []
    assert files_with_it(site.folder / "data", own_server.folder) == []


async def test_nor_is_it_after_a_piped_that_was_killed(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite], tmp_path: Path
) -> None:
    site, record = site_of(own_server), tmp_path / "used"
    async with site.client() as client:
        made = await started(site, client, record)
        site.signal(signal.SIGKILL)
        await site.ended()
        site.start()
        (record / "go").touch()
        ended = await client.completed(made)
        said = await said_about(client, site, ended)
    await site.stop()
    own_server.stop()

    assert ended.status == pb.DEPLOYMENT_FAILURE, ended.status_reason
    assert "exit code 3" in ended.status_reason, ended.status_reason
    assert found_in(said) == []
    assert found_in(site.log.read_bytes()) == []
    assert files_with_it(site.folder / "data", own_server.folder) == []


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ("echo {{ .encryptedSecrets.odd }}", "'odd' holds characters that mean something to a"),
        ("echo {{ .encryptedSecrets.plantd }}", "there is no secret 'plantd' (did you mean 'plan"),
        ("echo {{ .encryptedSecrets.planted | b64enc }}", "cannot do more with a secret than name"),
    ],
)
async def test_a_script_that_cannot_have_its_secret_does_not_run(
    site: PipedSite, client: SiteClient, run: str, told: str
) -> None:
    site.commit({"README": "an example"})
    site.configure("scriptrun", secretManagement=management(site))
    site.start()
    site.commit(FILES)
    script = {"name": "SCRIPT_RUN", "with": {"run": f"touch {site.folder}/ran; {run}"}}
    commit = site.commit_application("app", [script], encryption=ENCRYPTION)

    ended = await client.completed(await client.deploy("app", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert told in ended.status_reason, ended.status_reason
    assert found_in(ended.status_reason.encode()) == []
    assert not (site.folder / "ran").exists()


async def test_without_keys_planning_says_what_is_missing(
    site: PipedSite, client: SiteClient
) -> None:
    site.commit({"README": "an example"})
    site.configure("scriptrun")
    site.start()
    script = {"name": "SCRIPT_RUN", "with": {"run": "echo {{ .encryptedSecrets.planted }}"}}
    commit = site.commit_application("app", [script], encryption=ENCRYPTION)

    ended = await client.completed(await client.deploy("app", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "the secret 'planted' cannot be opened: this piped cannot open" in ended.status_reason
    assert "set secretManagement" in ended.status_reason
    assert list(ended.stages) == []


async def test_people_close_secrets_through_the_control_plane(
    site: PipedSite, client: SiteClient
) -> None:
    site.commit({"README": "an example"})
    site.configure("scriptrun", secretManagement=management(site))
    site.start()
    commit = site.commit_application("app", [{"name": "SCRIPT_RUN", "with": {"run": "true"}}])
    await client.completed(await client.deploy("app", commit))

    encrypt = ["encrypt", "--piped-id", site.piped_id]
    closed = (await asyncio.to_thread(pipectl, site, *encrypt, given=ODD)).strip()
    script = {
        "name": "SCRIPT_RUN",
        "with": {
            "run": f'printf %s "$ODD" > {site.folder}/got',
            "env": {"ODD": "{{ .encryptedSecrets.odd }}"},
        },
    }
    commit = site.commit_application("two", [script], encryptedSecrets={"odd": closed})
    ended = await client.completed(await client.deploy("two", commit))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert (site.folder / "got").read_text() == ODD
