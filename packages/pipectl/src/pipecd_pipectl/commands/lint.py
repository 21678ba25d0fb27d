# SPDX-License-Identifier: Apache-2.0
"""`pipectl lint`: reports what is wrong in files before they are deployed. Needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipecd_model.errors import add_hint
from pipecd_pipectl.output import echo, print_json

if TYPE_CHECKING:
    from pipecd_model.config import Fault, PipedConfig
    from pipecd_model.lint import Problems

_FAULTY = 1  # what the command ends with when there are faults


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--piped",
    "piped_file",
    type=click.Path(path_type=Path),
    help="The file of the piped that deploys the applications, to check them against it.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="github: annotations that GitHub shows beside the lines.",
)
def lint(paths: tuple[Path, ...], piped_file: Path | None, output: str) -> None:
    """Check files, folders or whole repositories.

    In folders, application files (*.pipecd.yaml) are found by themselves, and every other document
    whose apiVersion and kind are ours; manifests are left to their plugins. Unknown keys are errors
    here. Ends with 1 if there are errors; warnings do not count.

    \b
    Examples:
      pipectl lint .
      pipectl lint shop/app.pipecd.yaml --piped piped.yaml
    """
    results = _results(paths, piped_file)
    faults = [fault for _, problems in results for fault in problems.faults]
    warnings = [warning for _, problems in results for warning in problems.warnings]
    if output == "json":
        print_json(
            {
                "files": len(results),
                "errors": [_entry(fault) for fault in faults],
                "warnings": [_entry(warning) for warning in warnings],
            }
        )
    elif output == "github":
        for level, found in (("error", faults), ("warning", warnings)):
            for fault in found:
                echo(_annotation(level, fault))
    else:
        for fault in faults:
            echo(str(fault))
        for warning in warnings:
            echo(f"warning: {warning}")
        echo(_summary(len(results), len(faults), len(warnings)), err=True)
    if faults:
        raise click.exceptions.Exit(_FAULTY)


def _results(paths: tuple[Path, ...], piped_file: Path | None) -> list[tuple[Path, Problems]]:
    from pipecd_model.lint import LintContext  # noqa: PLC0415 - others need not wait for it
    from pipecd_model.lint import lint as judge  # noqa: PLC0415
    from pipecd_pipectl import documents  # noqa: PLC0415
    from pipecd_pipectl.installed import find_installed_plugins  # noqa: PLC0415

    piped = _piped(piped_file)
    installed = find_installed_plugins()
    templates: dict[Path | None, frozenset[str] | None] = {}
    results: list[tuple[Path, Problems]] = []
    for path, data in documents.find_documents(paths):
        files = documents.FilesAround(path)
        root = files.repository
        if root not in templates:
            templates[root] = _templates(root)
        context = LintContext(
            files=files,
            piped=piped,
            templates=templates[root],
            installed=installed,
        )
        results.append((path, judge(data, file=str(path), context=context)))
    return results


def _piped(file: Path | None) -> PipedConfig | None:
    if file is None:
        return None
    from pipecd_model.config import load_piped  # noqa: PLC0415
    from pipecd_pipectl import documents  # noqa: PLC0415

    return load_piped(documents.read(file), file=str(file)).config


def _templates(root: Path | None) -> frozenset[str] | None:
    """Name the analysis templates of a repository; None if it is not known which one it is."""
    if root is None:
        return None
    from pipecd_model.config import (  # noqa: PLC0415
        ConfigFaultsError,
        load_analysis_template,
    )
    from pipecd_pipectl import documents  # noqa: PLC0415

    for path in documents.events_folder(root):
        try:
            return load_analysis_template(documents.read(path), file=str(path)).config.names
        except ConfigFaultsError:
            continue  # another kind, or reported when that file is checked
    return frozenset()


def _entry(fault: Fault) -> dict[str, Any]:
    return {
        "file": fault.file,
        "line": fault.line,
        "column": fault.column,
        "path": fault.path,
        "message": fault.message,
        "hint": fault.hint,
    }


def _annotation(level: str, fault: Fault) -> str:
    place = f"file={_property(fault.file)},line={fault.line or 1},col={fault.column or 1}"
    path = f"{fault.path}: " if fault.path else ""
    return f"::{level} {place}::{_data(add_hint(f'{path}{fault.message}', fault.hint))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _summary(files: int, faults: int, warnings: int) -> str:
    def count(number: int, noun: str) -> str:
        return f"{number} {noun}" + ("" if number == 1 else "s")

    return ", ".join((count(files, "file"), count(faults, "error"), count(warnings, "warning")))
