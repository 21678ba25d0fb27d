# SPDX-License-Identifier: Apache-2.0
"""The versions of a commit: of its modules, and of the providers that it has locked."""

from pathlib import Path

import pytest
from pipecd_plugin_terraform.hcl import HclError, read_blocks
from pipecd_plugin_terraform.plugin import TerraformPlugin

from pipecd_sdk import StageFailedError, Version
from pipecd_sdk.testing import StageHarness

MAIN = """
# module "commented" { source = "no" }
/* module "also" {
} */
locals {
  text = "a } brace and ${join("", ["}", "{"])}"
  doc  = <<-EOT
    module "inside" {
  EOT
}
module "network" {
  source  = "git::https://example.com/network.git?ref=v1" // why
  version = "1.2.3"
  tags = { source = "not this" }
  providers = {
    aws = aws.west
  }
}
module "local" { source = "./local" }
module "computed" {
  source = "${path.module}/x"
}
"""
LOCK = """
provider "registry.terraform.io/hashicorp/aws" {
  version     = "5.31.0"
  constraints = "~> 5.0"
  hashes = [
    "h1:abc=",
  ]
}
"""


async def versions(folder: Path) -> list[Version]:
    return list(await StageHarness(TerraformPlugin(), directory=folder).versions())


async def test_modules_and_locked_providers_are_versions(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(MAIN)
    (tmp_path / "more.tf.json").write_text('{"module": {"j": {"source": "./j", "version": "2"}}}')
    (tmp_path / ".terraform.lock.hcl").write_text(LOCK)

    assert await versions(tmp_path) == [
        Version(name="network", version="1.2.3", url="git::https://example.com/network.git?ref=v1"),
        Version(name="local", version="", url="./local"),
        Version(name="computed", version="", url=""),
        Version(name="j", version="2", url="./j"),
        Version(name="aws", version="5.31.0", url="registry.terraform.io/hashicorp/aws"),
    ]


def test_texts_of_several_lines_are_passed_over() -> None:
    text = (
        'module "a" {\n  x = <<A\nA\n  y = <<-B\n  module "no" {\n\tB\r\n  version = "1"\n}\n'
        'module "b" { /* } */ source = "./b" }\nz = <<C\nC'
    )

    assert [(each.labels, each.attributes) for each in read_blocks(text)] == [
        (["a"], {"version": "1"}),
        (["b"], {"source": "./b"}),
    ]


async def test_a_configuration_without_either_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text('resource "terraform_data" "x" {\n}\n')

    assert await versions(tmp_path) == [Version(name="unknown", version="unknown")]


@pytest.mark.parametrize(
    "text",
    [
        'module "x" {',
        "}",
        'a = "no end\n',
        "x = ((" + "(" * 200,
        'a = "' + '${"' * 5_000,
        # Looked for to the end of the file once, not from each place.
        "/* " * 500_000,
        "x = <<A\n" * 200_000,
    ],
    ids=lambda text: text[:12],
)
async def test_what_is_no_hcl_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(HclError):
        read_blocks(text)
    (tmp_path / "main.tf").write_text(text)

    with pytest.raises(StageFailedError, match=r"'main\.tf'"):
        await versions(tmp_path)


async def test_a_folder_without_terraform_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="no Terraform file"):
        await versions(tmp_path)


async def test_a_file_that_leads_out_of_the_repository_is_not_read(tmp_path: Path) -> None:
    """A link is followed by nothing but the repository's own files."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "outside.tf").write_text('module "secret" {\n  source = "x"\n}\n')
    (tmp_path / "repo" / "main.tf").symlink_to(tmp_path / "outside.tf")

    with pytest.raises(StageFailedError, match="leads out of the repository"):
        await versions(tmp_path / "repo")
