# SPDX-License-Identifier: Apache-2.0
"""The images of `deploy/`: their steps are run, and what they make serves, without an engine.

Steps and start are read from the files themselves. A root folder takes the place of the image, a
namespace with a read-only root that of the container. `make test-all` runs this as root on Debian.
"""

import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.containerfile import Builder, Image

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DEBIAN = "docker.io/library/debian:bookworm-slim"
LIMIT_SECONDS = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="needs root and Debian's packages",
    ),
]


def bootstrap(folder: Path) -> Path:
    """Makes the root of a small Debian, with the packages that apt knows here."""
    tool = shutil.which("debootstrap")
    variables = dict(os.environ)
    if tool is None:
        fetched = folder / "debootstrap"
        fetched.mkdir()
        subprocess.run(
            ["apt-get", "download", "-q", "debootstrap"], cwd=fetched, check=True, timeout=120
        )
        [package] = fetched.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, fetched], check=True, timeout=60)
        tool = str(fetched / "usr" / "sbin" / "debootstrap")
        variables["DEBOOTSTRAP_DIR"] = str(fetched / "usr" / "share" / "debootstrap")
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    mirrors = subprocess.run(
        [*asked, "Origin: Debian", "Release: bookworm"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    if not mirrors:
        pytest.skip("apt knows no mirror of Debian bookworm here; run `apt-get update`")
    root = folder / "debian"
    subprocess.run(
        [tool, "--variant=minbase", "bookworm", root, mirrors[0]],
        env=variables,
        check=True,
        timeout=600,
        stdout=subprocess.DEVNULL,
    )
    return root


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory, dist: Path) -> Builder:
    work = tmp_path_factory.mktemp("containers")
    root = bootstrap(work)
    if Path("/etc/pip.conf").is_file():
        shutil.copy("/etc/pip.conf", root / "etc")
    ways = subprocess.run(["apt-config", "dump", "Acquire"], check=True, stdout=-1, timeout=60)
    (root / "etc" / "apt" / "apt.conf.d" / "00here").write_bytes(ways.stdout)
    variables = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    variables.pop("PIP_FIND_LINKS", None)
    certificates = os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
    shutil.copy(certificates, root / "here.pem")
    variables["PIP_CERT"] = "/here.pem"
    context = work / "context"
    context.mkdir()
    shutil.copytree(dist, context / "dist")
    shutil.copy(ROOT / "constraints.txt", context)
    return Builder(work, context, {DEBIAN: Image(root=root)}, variables)


@pytest.fixture(scope="module")
def server_image(builder: Builder) -> Image:
    return builder.build(DEPLOY / "server.Containerfile")


@pytest.fixture(scope="module")
def piped_image(builder: Builder) -> Image:
    made = builder.build(DEPLOY / "piped.Containerfile")
    builder.images["pipecd/piped"] = made
    return made


CONTAINER = """
root=$1 user=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do mount --bind "$1" "$root$2"; shift 2; done; shift
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"
exec chroot --userspec="$user" "$root" "$@"
"""


@contextmanager
def container(
    image: Image, data: Path, arguments: Sequence[str], log: Path, *, mounted: Sequence[str] = ()
) -> Iterator[None]:
    """Runs an image as `podman run --read-only --tmpfs /tmp` does, but for the network."""
    [volume] = image.volumes
    data.mkdir()
    os.chown(data, *map(int, image.user.split(":")))
    inside = ["env", "-i", *(f"{key}={value}" for key, value in image.environment.items())]
    inside += ["sh", "-c", f'cd {image.folder} && exec "$@"', "sh", *image.entry, *arguments]
    places = [str(data), volume, *mounted]
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", CONTAINER, "sh"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, str(image.root), image.user, *places, "--", *inside],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=LIMIT_SECONDS)


def wait_for(look: str, log: Path) -> None:
    limit = time.monotonic() + LIMIT_SECONDS
    while look not in (printed := log.read_text()):
        assert time.monotonic() < limit, f"never said {look!r}:\n{printed}"
        time.sleep(0.05)  # between looks at another process's output


PIPED = """\
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: default
  apiAddress: {address}
  plugins: [{{name: scriptrun}}, {{name: wait}}, {{name: waitapproval}}]
"""


@pytest.mark.parametrize("file", ["piped", "your-commands", "your-image"])
def test_server_and_agent_run_from_their_images(
    builder: Builder, server_image: Image, piped_image: Image, tmp_path: Path, file: str
) -> None:
    """Without rights, with a root that nobody can write to, and with their own data folders."""
    agent = piped_image if file == "piped" else builder.build(DEPLOY / f"{file}.Containerfile")
    address = f"127.0.0.1:{pick_port()}"
    listen = [address if each == "0.0.0.0:8080" else each for each in server_image.command]
    config = tmp_path / "config"
    config.mkdir()
    server_log, piped_log = tmp_path / "server.log", tmp_path / "piped.log"

    with container(server_image, tmp_path / "server", listen, server_log):
        wait_for("listening on", server_log)
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
            assert answer.status == 200
        key = str(tmp_path / "server" / "admin.key")
        way = ("--address", address, "--insecure", "--api-key-file", key, "--output", "table")

        def ask(*words: str) -> str:
            command = [str(Path(sys.executable).parent / "pipectl"), "piped", *words, *way]
            done = subprocess.run(command, stdout=-1, text=True, check=True, timeout=60)
            return str(done.stdout)

        shown = ask("register", "--name", "one").strip().splitlines()[-2:]
        (config / "piped.yaml").write_text(PIPED.format(address=address) + "\n".join(shown) + "\n")
        arguments = [*agent.command, "--insecure"]
        places = [str(config), "/etc/piped"]
        with container(agent, tmp_path / "agent", arguments, piped_log, mounted=places):
            wait_for("piped.connected", piped_log)
            limit = time.monotonic() + LIMIT_SECONDS
            while "scriptrun, wait, waitapproval" not in (listed := ask("list")):
                assert time.monotonic() < limit, listed + piped_log.read_text()
                time.sleep(0.2)  # between looks at another process's state
    assert "Traceback" not in server_log.read_text() + piped_log.read_text()


def test_the_images_have_the_commands_that_they_promise(
    builder: Builder, piped_image: Image
) -> None:
    def has(image: Image, command: str) -> bool:
        path = image.environment["PATH"].split(":")
        return any((image.root / folder.lstrip("/") / command).is_file() for folder in path)

    mine = builder.build(DEPLOY / "your-commands.Containerfile")

    assert all(has(piped_image, each) for each in ("git", "curl", "ssh", "piped", "tini"))
    assert not has(piped_image, "jq")
    assert all(has(mine, each) for each in ("git", "jq", "make", "piped"))
