# SPDX-License-Identifier: Apache-2.0
"""What a sync would change in a directory, compared with what is really there."""

from typing import Final

from pipecd_plugin_files.compare import Difference, compare, format_counts, format_patch
from pipecd_plugin_files.livestate import SiteContent, content
from pipecd_plugin_files.provider.tree import Digests, read_desired
from pipecd_plugin_files.source import SourceFolder
from pipecd_sdk import Preview

# What is missing there would be added; the other way round it would be removed.
_WORDS: Final = {Difference.MISSING: "added", Difference.EXTRA: "removed"}


def preview(seen: SiteContent, folder: SourceFolder, digests: Digests) -> Preview:
    """Returns what a sync would change: the counts as summary, a patch as details."""
    found = compare(seen.files, read_desired(folder.path, folder.excluded, digests))
    if not found and seen.release is not None:
        return Preview(summary="no file would change", no_change=True)
    details = format_patch(found, seen.read, lambda path: content(folder.path, path), folder.hidden)
    for difference, word in _WORDS.items():
        details = details.replace(f"{difference.value}: ", f"{word}: ")
    first = "" if seen.release else " (the first release)"
    return Preview(summary=f"{format_counts(found, _WORDS) or 'no files'}{first}", details=details)
