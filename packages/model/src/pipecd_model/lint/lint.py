# SPDX-License-Identifier: Apache-2.0
"""One file, judged: dispatches on its kind and gathers what the checks of that kind find."""

from __future__ import annotations

from dataclasses import dataclass

from pipecd_model.config import v0
from pipecd_model.config.document import (
    APPLICATION_KINDS,
    KINDS,
    Document,
    load_application_document,
)
from pipecd_model.config.fault import ConfigFaultsError, Fault, sort_faults
from pipecd_model.config.schema import ConfigModel
from pipecd_model.lint import application, piped
from pipecd_model.lint.context import LintContext, Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """What is wrong in a file, and what its author should look at all the same."""

    kind: str = ""
    config: ConfigModel | None = None
    """What it says; None if it is wrong."""
    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()


def lint(text: str | bytes, *, file: str, context: LintContext | None = None) -> Problems:
    """Judge a file of any kind."""
    kind = ""
    try:
        document = Document(text, file, strict=True)
        kind = str(document.kind)
        return _judge(document, kind, file, context or LintContext())
    except ConfigFaultsError as error:
        return Problems(kind=kind, faults=error.faults, warnings=error.warnings)


def _judge(document: Document, kind: str, file: str, context: LintContext) -> Problems:
    document.expect((*KINDS, *v0.KINDS))
    notes = Notes(document.findings)
    if kind in APPLICATION_KINDS:
        application.check(document, notes, context)
        loaded = load_application_document(document)
        elsewhere = application.check_targets(loaded.config, file, context.files)
        if elsewhere:
            raise ConfigFaultsError(elsewhere, warnings=loaded.warnings)
        return Problems(kind=kind, config=loaded.config, warnings=loaded.warnings)
    if kind == "Piped":
        piped.check(document.spec, notes, context)
    # An unknown kind was refused above; its body is not checked.
    body = document.load(KINDS.get(kind, ConfigModel), document.spec if kind in KINDS else {})
    return Problems(kind=kind, config=body.config, warnings=sort_faults(body.warnings))
