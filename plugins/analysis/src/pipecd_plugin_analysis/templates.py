# SPDX-License-Identifier: Apache-2.0
"""The AnalysisTemplate of a repository, and what a stage looks at once its names are resolved."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_plugin_analysis.config import AnalysisOptions, find_item_faults
from pipecd_sdk import StageContext, StageFailedError
from pipecd_sdk.kit.analysis import (
    AnalysisTemplateConfig,
    ConfigFaultsError,
    HttpConfig,
    LogConfig,
    MetricConfig,
    load_first_analysis_template,
)
from pipecd_sdk.kit.text import make_printable_line

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
LARGEST_FILE: Final = 4 * 1024 * 1024
MOST_FILES: Final = 1000
_KINDS: Final = {"metrics": "metrics", "logs": "log", "https": "http"}
"""The lists of a stage, each with what its analyses are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """One thing that a stage looks at."""

    id: str
    """Like `metrics-0`: its kind and its place among those."""
    name: str
    """Its template, if it has one."""
    item: MetricConfig | LogConfig | HttpConfig
    arguments: Mapping[str, str]
    """What its query knows as `.AppCustomArgs`."""


async def resolve(ctx: StageContext, options: AnalysisOptions) -> list[Analysed]:
    """Returns everything a stage looks at. Raises StageFailedError with all that is wrong."""
    templates = AnalysisTemplateConfig()
    if any(item.template is not None for _, _, item in options.list_items()):
        templates = await asyncio.to_thread(_load, ctx.source.target.shared_config_directory)
    common: Mapping[str, str] = ctx.source.target.options.app_custom_args
    resolved: list[Analysed] = []
    faults: list[str] = []
    for key, index, item in options.list_items():
        place = f"{key}[{index}]"
        reference = item.template
        chosen: MetricConfig | LogConfig | HttpConfig = item
        if reference is not None:
            known: Mapping[str, MetricConfig | LogConfig | HttpConfig] = getattr(templates, key)
            if reference.name not in known:
                faults.append(
                    f"{place}: there is no analysis template {reference.name!r} in .pipe/"
                    f" ({_list_names(known)})"
                )
                continue
            chosen = known[reference.name]
            faults += [
                f"{place}: the template {reference.name!r}: {path}: {message}"
                for path, message, _ in find_item_faults(chosen, options.duration)
            ]
        resolved.append(
            Analysed(
                id=f"{_KINDS[key]}-{index}",
                name=reference.name if reference else "",
                item=chosen,
                arguments={**common, **(reference.app_args if reference else {})},
            )
        )
    if faults:
        raise StageFailedError("\n".join(faults))
    return resolved


def _list_names(known: Mapping[str, object]) -> str:
    if not known:
        return "there are none of this kind"
    return f"there are {', '.join(sorted(known)[:20])}"


def _load(folder: str) -> AnalysisTemplateConfig:
    """Reads the first file of the kind AnalysisTemplate, in the order of names."""
    try:
        loaded = load_first_analysis_template(_read_files(Path(folder)) if folder else ())
    except ConfigFaultsError as error:
        raise StageFailedError(f"the analysis templates cannot be read: {error}") from None
    return loaded.config if loaded is not None else AnalysisTemplateConfig()


def _read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix in SUFFIXES)
    except (FileNotFoundError, NotADirectoryError):
        return
    root = folder.resolve()
    for name in names[:MOST_FILES]:
        file = folder / name
        # A link must not lead out of the repository.
        if not file.is_file() or root.parent not in file.resolve().parents:
            continue
        with file.open("rb") as opened:
            yield f".pipe/{make_printable_line(name)}", opened.read(LARGEST_FILE + 1)
