# SPDX-License-Identifier: Apache-2.0
"""What completes the arguments and options that name something: click calls these functions.

They are cheap to import; the control plane's client is imported when one of them is called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]"


class Noun(Enum):
    """What the control plane can be asked for."""

    APPLICATION = auto()
    APPLICATION_ID = auto()
    DEPLOYMENT = auto()
    """An application, or what begins like the id of a deployment."""
    DEPLOYMENT_ID = auto()
    STAGE = auto()
    """Of the deployment that was named before; by name or number."""
    STAGE_ID = auto()
    PIPED = auto()
    PIPED_ID = auto()
    PLUGIN = auto()
    """Of the piped that was named before."""
    API_KEY = auto()
    CHAIN = auto()
    """By its id, or one of its applications."""


def complete_contexts(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Completes the name of a context; asks nobody."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only to complete

    from pipecd_model.errors import PipecdError  # noqa: PLC0415
    from pipecd_pipectl.contexts import ContextStore  # noqa: PLC0415

    names: list[str] = []
    with suppress(PipecdError):
        names = ContextStore().list_names()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _complete(noun: Noun) -> Complete:
    def complete(
        ctx: click.Context, _: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        # By its name, as commands are: it asks through the client, whose options are completed too.
        asking = import_module("pipecd_pipectl.completing.asking")
        found: list[CompletionItem[str]] = asking.ask(noun, ctx, incomplete)
        return found

    return complete


complete_applications = _complete(Noun.APPLICATION)
complete_application_ids = _complete(Noun.APPLICATION_ID)
complete_deployments = _complete(Noun.DEPLOYMENT)
complete_deployment_ids = _complete(Noun.DEPLOYMENT_ID)
complete_stages = _complete(Noun.STAGE)
complete_stage_ids = _complete(Noun.STAGE_ID)
complete_pipeds = _complete(Noun.PIPED)
complete_piped_ids = _complete(Noun.PIPED_ID)
complete_plugins = _complete(Noun.PLUGIN)
complete_api_keys = _complete(Noun.API_KEY)
complete_chains = _complete(Noun.CHAIN)
