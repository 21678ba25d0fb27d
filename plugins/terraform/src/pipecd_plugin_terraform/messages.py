# SPDX-License-Identifier: Apache-2.0
"""What Terraform says, line by line as JSON, made readable; and what its errors mean. Pure."""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from pipecd_plugin_terraform.masking import Mask
from pipecd_sdk import Severity, StageFailedError
from pipecd_sdk.kit.text import make_printable, make_printable_line
from pipecd_sdk.scripts.attempt import LogText

_HIDDEN: Final = frozenset({"refresh_complete", "resource_drift", "log"})
"""Messages that say nothing new."""
_PLANNED: Final = frozenset({"planned_change", "outputs"})
_LOCK_FIELD: Final = re.compile(
    r"^\s*(ID|Path|Operation|Who|Created):[ \t]*(.*?)[ \t]*$", re.MULTILINE
)
_HELD_LOCK: Final = re.compile(r"state already locked: ID=([^\s\"]+)")
"""Of the backend over HTTP, which shows its own lock in the place of the one that is held."""
_FRACTION: Final = re.compile(r"\.\d+(?= )")
_MOST_DETAIL: Final = 2_000
_CUT: Final = "(a message that is too long to be shown)"
_HEAD: Final = re.compile(r'\{"@level":"(\w+)","@message":("(?:[^"\\]|\\.)*")')
"""How a message begins; what it is about comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """An error or a warning."""

    is_error: bool
    summary: str
    detail: str = ""
    address: str = ""
    """The resource that it is about."""
    place: str = ""
    """File and line."""

    def __str__(self) -> str:
        head = f"{'Error' if self.is_error else 'Warning'}: {self.summary}"
        about = [f"  on {self.place}"] if self.place else []
        if self.address:
            about = [f"{about[0] if about else ' '} ({self.address})".rstrip()]
        detail = [f"  {line}" for line in self.detail[:_MOST_DETAIL].strip().splitlines()]
        return "\n".join([head, *about, *detail])


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLock:
    """A lock of a state that somebody holds."""

    id: str
    who: str
    created: str
    operation: str = ""
    path: str = ""

    def __str__(self) -> str:
        since = f" since {_FRACTION.sub('', self.created)}" if self.created else ""
        how = self.operation.removeprefix("OperationType").lower()
        what = f" for {how}" if how else ""
        return f"the state is locked by {self.who or 'somebody'}{since}{what} (lock {self.id})"


@dataclass(slots=True)
class MessageReader:
    """Reads the messages of one command: what the log shows of each, and what went wrong."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    mask: Mask = field(default_factory=Mask)
    planned: list[dict[str, Any]] = field(default_factory=list)
    """The messages that say what a plan would change."""
    _is_in_cut: bool = False
    """A message so long that it comes in pieces: only its first one tells what it is."""

    def translate(self, line: str) -> LogText:
        """Returns what the log shows of a line; a line that is no message is shown as it is."""
        message = parse(line)
        if message is None:
            if line.startswith('{"@'):
                self._is_in_cut = True
                return self._read_cut(line)
            return LogText("" if self._is_in_cut else make_printable(self.mask.apply(line)))
        self._is_in_cut = False
        # Masked once it is read: a value may be written in many ways within JSON.
        kind = message.get("type")
        if kind == "diagnostic":
            found = _read_diagnostic(message.get("diagnostic"), self.mask)
            self.diagnostics.append(found)
            severity = Severity.ERROR if found.is_error else Severity.INFO
            return LogText(make_printable(str(found)), severity)
        if kind in _PLANNED:
            self.planned.append(message)
        if kind in _HIDDEN:
            return LogText("")
        text = make_printable_line(self.mask.apply(str(message.get("@message", ""))))
        if kind == "outputs":  # without their values: not every secret is marked as one
            outputs = message.get("outputs")
            names = ", ".join(sorted(outputs)) if isinstance(outputs, dict) else ""
            return LogText(make_printable_line(self.mask.apply(f"Outputs: {names}")))
        if kind == "change_summary":
            return LogText(text, Severity.SUCCESS)
        return LogText(text)

    def _read_cut(self, line: str) -> LogText:
        found = _HEAD.match(line)
        if found is None:
            return LogText(_CUT)
        text = make_printable_line(self.mask.apply(str(json.loads(found[2], strict=False))))
        is_error = found[1] == "error"
        if is_error:
            said = text.removeprefix("Error: ")
            self.diagnostics.append(Diagnostic(is_error=True, summary=said))
        return LogText(f"{text} {_CUT}", Severity.ERROR if is_error else Severity.INFO)

    @property
    def errors(self) -> list[Diagnostic]:
        """Returns what went wrong."""
        return [each for each in self.diagnostics if each.is_error]


def parse(line: str) -> dict[str, Any] | None:
    """Returns a message, None for a line that is none."""
    if not line.startswith("{"):
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and "@message" in message else None


def _read_diagnostic(given: object, mask: Mask) -> Diagnostic:
    found = given if isinstance(given, dict) else {}
    place = ""
    where = found.get("range")
    if isinstance(where, dict) and isinstance(where.get("start"), dict):
        place = f"{where.get('filename', '')} line {where['start'].get('line', '')}"
    return Diagnostic(
        is_error=found.get("severity") == "error",
        summary=make_printable_line(mask.apply(str(found.get("summary", "")))),
        detail=mask.apply(str(found.get("detail", ""))),
        address=make_printable_line(mask.apply(str(found.get("address", "") or ""))),
        place=make_printable_line(place),
    )


def find_lock(errors: list[Diagnostic]) -> StateLock | None:
    """Returns the lock that a command has met, None when it has met none.

    Example:
        >>> detail = "Lock Info:\\n  ID:        7\\n  Who:       ann@desk\\n  Created:   today\\n"
        >>> error = Diagnostic(is_error=True, summary="Error acquiring the state lock",
        ...                    detail=detail)
        >>> str(find_lock([error]))
        'the state is locked by ann@desk since today (lock 7)'
    """
    for each in errors:
        if "state lock" not in each.summary.lower():
            continue
        fields = {
            name: make_printable_line(value) for name, value in _LOCK_FIELD.findall(each.detail)
        }
        held = _HELD_LOCK.search(each.detail)
        if held and held[1] != fields.get("ID"):
            return StateLock(id=make_printable_line(held[1]), who="", created="")
        if fields.get("ID"):
            return StateLock(
                id=fields["ID"],
                who=fields.get("Who", ""),
                created=fields.get("Created", ""),
                operation=fields.get("Operation", ""),
                path=fields.get("Path", ""),
            )
    return None


def explain(name: str, errors: list[Diagnostic], *, exit_code: int) -> StageFailedError:
    """Returns the failure of a command as a sentence that says what to do."""
    if lock := find_lock(errors):
        program = name.partition(" ")[0]
        return StageFailedError(
            str(lock),
            hint="wait until that has ended, or set lockTimeout; if nobody works on it any more: "
            f"{program} force-unlock {lock.id}",
        )
    if any("plan is stale" in each.summary.lower() for each in errors):
        return StageFailedError(
            "the plan is stale: the state has changed since it was made, so it is not applied",
            hint="deploy again: a new plan is made, and can be looked at before it is applied",
        )
    if errors:
        first = errors[0]
        about = f" ({first.address})" if first.address else ""
        said = first.detail.strip().partition("\n")[0][:300]
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        detail = f": {make_printable_line(said)}" if said else ""
        return StageFailedError(f"{name} failed: {first.summary}{about}{detail}{more}")
    if exit_code < 0:
        return StageFailedError(
            f"{name} was ended by signal {-exit_code}",
            hint="the log of the machine may say why, e.g. that its memory was used up",
        )
    return StageFailedError(f"{name} failed with exit code {exit_code}", hint="the log says why")
