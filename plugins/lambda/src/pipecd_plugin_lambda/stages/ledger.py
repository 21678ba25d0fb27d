# SPDX-License-Identifier: Apache-2.0
"""What a deployment has noted about one deploy target, in the deployment's metadata.

How it was before is noted before the first change, and never replaced: a stage that is killed
leaves the note behind. Values of the function are kept only where its versions have them not: AWS
has the others.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipecd_plugin_lambda.traffic import Traffic, parse_kept
from pipecd_sdk import Metadata, StageFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionNotes:
    """What function and alias had beside their versions, as far as the commit names it."""

    reserved: int | None = None
    provisioned: int = 0
    url: Mapping[str, Any] | None = None
    """The options of the alias's URL, with the API's names."""

    def to_json(self) -> dict[str, Any]:
        """Returns the options as they are kept."""
        url = dict(self.url) if self.url is not None else None
        return {"reserved": self.reserved, "provisioned": self.provisioned, "url": url}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionNotes:
    """What the stages keep for a rollback: the function as the deployment found it."""

    existed: bool = False
    """Whether the function was there."""
    traffic: Traffic | None = None
    """How the alias split the traffic; None when there was no alias."""
    earlier: Traffic | None = None
    """The same of the alias of the commit that ran before, where that is another one."""
    options: OptionNotes = field(default_factory=OptionNotes)
    has_begun: bool = False
    """Whether a first change has been sent to AWS."""
    version: str = ""
    """What the deployment has published."""
    undone: tuple[str, ...] = ()
    """Versions that a rollback has taken back."""

    def to_text(self) -> str:
        """Returns the notes as they are kept."""
        kept: dict[str, Any] = {
            "existed": self.existed,
            "original-traffic": self.traffic.to_json() if self.traffic else None,
            "earlier-traffic": self.earlier.to_json() if self.earlier else None,
            "original-options": self.options.to_json(),
            "begun": self.has_begun,
            "rollout": self.version,
            "undone": list(self.undone),
        }
        return json.dumps(kept, separators=(",", ":"))


def parse_notes(text: str) -> FunctionNotes:
    """Returns kept notes. Raises StageFailedError when they are none."""
    try:
        kept: Mapping[str, Any] = json.loads(text)
        traffic = kept["original-traffic"]
        # These, and whether it has begun, are not in the notes of an earlier release.
        earlier = kept.get("earlier-traffic")
        options = kept.get("original-options", {})
        return FunctionNotes(
            existed=bool(kept["existed"]),
            traffic=parse_kept(traffic) if traffic else None,
            earlier=parse_kept(earlier) if earlier else None,
            options=OptionNotes(**options),
            has_begun=bool(kept.get("begun", True)),
            version=str(kept["rollout"]),
            undone=tuple(map(str, kept["undone"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StageFailedError(
            "the deployment's metadata does not tell how it was before",
            hint="bring it back by deploying the earlier commit",
        ) from None


class FunctionLedger:
    """The notes of one deployment about one deploy target."""

    def __init__(self, metadata: Metadata, target: str) -> None:
        self._metadata = metadata
        self._key = f"lambda/{target}"

    async def read(self) -> FunctionNotes | None:
        """Returns the notes; None when no stage has looked at the function yet."""
        text = await self._metadata.get(self._key)
        return None if text is None else parse_notes(text)

    async def note_before(self, notes: FunctionNotes) -> None:
        """Notes how it is before the first change."""
        await self._metadata.put(self._key, notes.to_text())

    async def note_begun(self) -> None:
        """Notes that the first change is about to be sent, once."""
        notes = await self.read()
        if notes is not None and not notes.has_begun:
            await self._metadata.put(self._key, replace(notes, has_begun=True).to_text())

    async def note_version(self, notes: FunctionNotes, version: str) -> None:
        """Notes what was published."""
        noted = replace(notes, version=version, has_begun=True)
        await self._metadata.put(self._key, noted.to_text())

    async def note_undone(self, notes: FunctionNotes) -> None:
        """Notes that the deployment was rolled back: a stage that runs again begins anew."""
        undone = tuple(dict.fromkeys((*notes.undone, *filter(None, [notes.version]))))
        await self._metadata.put(self._key, replace(notes, version="", undone=undone).to_text())
