# SPDX-License-Identifier: Apache-2.0
"""The commands of `pipecd` with a configuration that names PostgreSQL: what works, what is said."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_test_support.controlplane_process import PROCESS_LIMIT_SECONDS
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.postgres import shared_postgres
from pipecd_test_support.served_settings import serving_with
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.rpc import CallError, call

SECRET = "open-sesame"  # noqa: S105 - of a test

DOCUMENT = """
apiVersion: pipecd.dev/v1beta1
kind: ControlPlane
spec:
  datastore: {{type: POSTGRESQL, config: {{url: "{}"}}}}
"""

FAIL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no space' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON piped FOR EACH ROW EXECUTE FUNCTION fail()
"""


async def pipecd(*arguments: str) -> tuple[int, str]:
    """Run the command; answers its code and all that it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from pipecd_controlplane.cli import main; main()",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PROCESS_LIMIT_SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode or 0, said.decode()


@pytest.fixture
def name() -> Iterator[str]:
    server = shared_postgres()
    made = server.clone_tables(server.make_name())
    yield made
    server.drop_database(made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def wrong(folder: Path) -> list[str]:
    """The flags of a server whose database refuses it."""
    file = folder.with_name("wrong.yaml")
    url = shared_postgres().url(user=f"nobody:{SECRET}")
    file.write_text(DOCUMENT.format(url))
    return ["--data-dir", str(folder), "--config-file", str(file)]


async def test_a_server_whose_database_refuses_it_says_one_sentence(wrong: list[str]) -> None:
    code, said = await pipecd("server", *wrong, "--listen", "127.0.0.1:0")

    assert code == 1
    assert said.startswith("error: the database refuses the user: ")
    assert said.count("\n") == 1, "a traceback is no sentence"
    assert SECRET not in said


async def test_a_project_that_cannot_be_kept_leaves_no_password(
    wrong: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "shop.password"

    code, said = await pipecd("project", "add", "shop", *wrong, "--password-file", str(file))

    assert code == 1
    assert said.startswith("error: the database refuses the user: ")
    assert SECRET not in said
    assert not file.exists()


async def test_a_backup_of_rows_in_postgresql_is_left_to_postgresql(
    name: str, folder: Path, tmp_path: Path
) -> None:
    arguments = ("backup", "--data-dir", str(folder), "--output", str(tmp_path / "copy.tar"))
    async with serving_with(folder, postgres=PostgresServer(url=shared_postgres().url(name))):
        code, said = await pipecd(*arguments)
        assert (code, "pg_dump" in said) == (1, True), said

    code, said = await pipecd(*arguments)
    assert code == 4
    assert "pg_dump" in said
    assert not (tmp_path / "copy.tar").exists()


async def test_a_server_says_that_nothing_is_sealed_without_a_store_that_all_share(
    name: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving_with(folder, postgres=PostgresServer(url=shared_postgres().url(name))):
        pass

    [line] = [each for each in caplog.records if each.message == "objects.not_sealed"]
    assert "logs and large values stay in the database" in line.fields["hint"]  # type: ignore[attr-defined]


async def test_a_file_that_was_restored_beside_a_database_is_not_silently_ignored(
    wrong: list[str], folder: Path
) -> None:
    (folder / "pipecd.db").touch()

    _, said = await pipecd("server", *wrong, "--listen", "127.0.0.1:0")

    assert said.startswith(f"warning: {str(folder / 'pipecd.db')!r} is not used: ")


async def test_a_link_to_sign_in_is_given_by_a_server_on_postgresql(
    name: str, folder: Path
) -> None:
    async with serving_with(folder, postgres=PostgresServer(url=shared_postgres().url(name))):
        code, said = await pipecd("sign-in-link", "--data-dir", str(folder))

    assert (code, said.startswith("http://127.0.0.1:")) == (0, True), said


async def test_callers_of_a_server_with_a_full_database_get_a_sentence_until_there_is_space(
    name: str, folder: Path
) -> None:
    server = shared_postgres()
    async with serving_with(folder, postgres=PostgresServer(url=server.url(name))) as plane:
        before = await register(plane, "before")
        server.run_sql(FAIL, database=name)
        with pytest.raises(CallError) as caught:
            await register(plane, "meanwhile")
        assert caught.value.status == "UNAVAILABLE"
        assert caught.value.message.startswith("cannot write to the database: no space (is its")
        known = await call(plane.admin.api.GetPiped, api.GetPipedRequest(piped_id=before))
        assert known.piped.name == "before", "what is there can be read all the time"
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.get(f"http://{plane.address}/healthz")
        assert answer.status_code == 200

        server.run_sql("DROP FUNCTION fail CASCADE", database=name)
        await register(plane, "after")
        listed = await plane.stores.pipeds.list_by_project("default")

    assert sorted(each.name for each in listed) == ["after", "before"]


async def register(plane: ServedControlPlane, piped_name: str) -> str:
    made = await call(plane.admin.api.RegisterPiped, api.RegisterPipedRequest(name=piped_name))
    return made.id


def test_the_settings_of_a_server_show_no_password() -> None:
    given = ServerSettings(
        data_dir=Path("x"), postgres=PostgresServer(url=f"postgresql://u:{SECRET}@h/d")
    )

    assert SECRET not in repr(given)
