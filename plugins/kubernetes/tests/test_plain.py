# SPDX-License-Identifier: Apache-2.0
"""Manifests in plain files: which files are read, and that none is outside the repository."""

from pathlib import Path

import pytest
from pipecd_plugin_kubernetes.config import Input, KubernetesOptions, KubernetesPluginConfig
from pipecd_plugin_kubernetes.rendering import load_manifests
from pipecd_plugin_kubernetes.rendering.plain import read_plain

from pipecd_sdk import Source, StageFailedError, Tool, Tools
from pipecd_sdk.repository import Folder


class NoTools(Tools):
    """Installs nothing."""

    async def get(self, tool: Tool) -> Path:
        raise AssertionError(f"nobody needs {tool.name}")


def write(path: Path, name: str, *, order: str = "0") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, "
        f"annotations: {{pipecd.dev/order: '{order}'}}}}\n"
    )


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/app").mkdir()
    write(tmp_path / "outside.yaml", "outside")
    write(tmp_path / "repo/common.yaml", "common")
    return tmp_path / "repo/app"


def read(app: Path, *names: str) -> list[str]:
    source = Source(application_directory=str(app), config_filename="app.pipecd.yaml")
    return [each.name for each in read_plain(Folder.open(source), names)]


def test_all_files_of_the_folder_are_read_but_application_files_and_folders(app: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "sub/d.yaml", "e.txt", "app.pipecd.yaml"):
        write(app / name, name.replace("/", "-"))
    write(app / "other.pipecd.yaml", "other")
    (app / "folder.yaml").mkdir()
    assert read(app) == ["a.yml", "b.yaml", "c.json"]


def test_named_files_are_read_in_their_order_also_from_elsewhere_in_the_repository(
    app: Path,
) -> None:
    write(app / "a.yaml", "a")
    write(app / "sub/b.yaml", "b")
    assert read(app, "sub/b.yaml", "../common.yaml", "a.yaml") == ["b", "common", "a"]


def test_nothing_outside_the_repository_is_read(app: Path) -> None:
    (app / "link.yaml").symlink_to("../../outside.yaml")
    for names in (["../../outside.yaml"], [str(app.parents[1] / "outside.yaml")], ["link.yaml"]):
        with pytest.raises(StageFailedError, match="leads out of the repository"):
            read(app, *names)
    with pytest.raises(StageFailedError, match=r"'link\.yaml' leads out"):
        read(app)


def test_nothing_of_git_itself_is_read(app: Path) -> None:
    write(app.parent / ".git/config", "config")
    (app / "link.yaml").symlink_to("../.git/config")
    for name in ("../.git/config", "link.yaml"):
        with pytest.raises(StageFailedError, match="is of git itself"):
            read(app, name)


def test_a_link_within_the_repository_is_followed(app: Path) -> None:
    (app / "link.yaml").symlink_to("../common.yaml")
    assert read(app) == ["common"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.yaml", None, "'gone.yaml' is not in the repository"),
        ("a.yaml", b"\xff", "a.yaml is not UTF-8 at byte 0"),
        ("a.yaml", b"a: [", "a.yaml: line"),
        ("a\0", None, "is not a path"),
    ],
)
def test_what_cannot_be_read_is_said(
    app: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (app / name).write_bytes(content)
    with pytest.raises(StageFailedError, match=said):
        read(app, name)


def test_a_folder_without_manifests_is_an_error(app: Path) -> None:
    """It would be pruned to nothing otherwise."""
    with pytest.raises(StageFailedError, match="there are no manifests"):
        read(app)


async def test_manifests_are_in_their_namespace_and_order(app: Path) -> None:
    write(app / "a.yaml", "last", order="1")
    write(app / "b.yaml", "first", order="-1")
    found = await load_manifests(
        Source(application_directory=str(app)),
        KubernetesOptions(input=Input(namespace="shop")),
        config=KubernetesPluginConfig(),
        tools=NoTools(),
        application_name="web",
    )
    assert [str(each.key) for each in found] == [
        ":ConfigMap:shop:first",
        ":ConfigMap:shop:last",
    ]
    assert "pipecd.dev/managed-by" not in found[0].labels
