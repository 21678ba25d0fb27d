# SPDX-License-Identifier: Apache-2.0
"""Pipeds: registered by people, described by themselves when they start."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import commands, limits
from pipecd_controlplane.usecases.keys import new_piped_key, quick_hash
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_model.errors import ConfigError, ConflictError, StateError
from pipecd_model.ids import new_id
from pipecd_model.secrets import seal
from pipecd_wire.model import command_pb2, piped_pb2
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice

ONLINE_SECONDS: Final = 120
"""A piped that does not watch reports every minute; one missed report is forgiven."""

RECONNECT_SECONDS: Final = 15
"""A piped that watches is connected again by then; one that is not, and is silent, was killed."""

ALARM_SECONDS: Final = 600
"""How long an alarm is shown after it was last raised; a lasting one is raised every minute."""

MOST_KEYS: Final = 5
"""Keys of a piped whose registration is repeated; the authenticator compares with each of them."""

KEYS_AT_ONCE: Final = 2
"""Of a piped, as upstream has it: the one in use, and the one to change over to."""

NAMED_APPLICATIONS: Final = 3
"""Applications that a refusal to delete their piped names."""

REDACTED: Final = "redacted"


async def register(
    stores: Stores, requester: Requester, *, name: str, description: str, now: Now
) -> tuple[str, str]:
    """Add a piped; returns its id and its key, of which only the hash is stored.

    A call that is repeated with its idempotency key adds one more key to the piped that it made.
    """
    _check_texts(name, description)
    wanted_id = requester.request_id("RegisterPiped")
    key = new_piped_key()
    at = now()
    kept = piped_pb2.PipedKey(hash=quick_hash(key), creator=requester.name, created_at=at)
    piped = piped_pb2.Piped(
        id=wanted_id or new_id(),
        name=name,
        desc=description,
        project_id=requester.project_id,
        keys=[kept],
        created_at=at,
        updated_at=at,
    )

    def add_key(known: piped_pb2.Piped) -> None:
        # Older keys stay: an earlier response may have arrived after all, and its key be in use.
        if len(known.keys) >= MOST_KEYS:
            raise StateError(
                f"the piped {known.name!r} was registered by this call before",
                hint="make a new call, with an idempotency key of its own",
            )
        known.keys.append(kept)

    try:
        await stores.pipeds.add(piped)
    except ConflictError:
        if wanted_id is None:
            raise
        await stores.pipeds.update(requester.project_id, wanted_id, add_key)
    return piped.id, key


async def update(
    stores: Stores, project_id: str, piped_id: str, *, name: str, description: str
) -> None:
    """Change the name and the description of a piped."""
    _check_texts(name, description)

    def edit(piped: piped_pb2.Piped) -> None:
        piped.name = name
        piped.desc = description

    await stores.pipeds.update(project_id, piped_id, edit)


def _check_texts(name: str, description: str) -> None:
    limits.name("name", name)
    limits.text("desc", description, limits.DESCRIPTION)


async def set_disabled(stores: Stores, project_id: str, piped_id: str, *, disabled: bool) -> None:
    """Enable or disable a piped."""

    def edit(piped: piped_pb2.Piped) -> None:
        piped.disabled = disabled

    await stores.pipeds.update(project_id, piped_id, edit)


async def delete(
    stores: Stores, presence: Presence, project_id: str, piped_id: str, now: Now
) -> None:
    """Delete a piped that is offline and has no applications. Raises StateError otherwise."""
    piped = await stores.pipeds.get(project_id, piped_id)
    if piped_id in await find_online(stores, presence, project_id, now):
        raise StateError(
            f"the piped {piped.name!r} is online",
            hint="stop it first; one that was killed counts as offline after 15 seconds,"
            " or two minutes if it only polls",
        )

    async def work(transaction: Transaction) -> None:
        wanted = ApplicationFilter(piped_id=piped_id, deleted=False)
        page = await stores.applications.page_in(
            transaction, project_id, wanted, limit=NAMED_APPLICATIONS + 1, cursor=""
        )
        if page.items:
            names = sorted(each.name for each in page.items)
            more = " and more" if len(names) > NAMED_APPLICATIONS else ""
            raise StateError(
                f"applications belong to the piped {piped.name!r}:"
                f" {', '.join(names[:NAMED_APPLICATIONS])}{more}",
                hint="delete them, or move them to another piped first",
            )
        await stores.pipeds.remove_in(transaction, piped)

    await stores.database.write(work)


async def get(stores: Stores, project_id: str, piped_id: str) -> piped_pb2.Piped:
    """Returns a piped as it may be shown. Raises NotFoundError."""
    return redact(await stores.pipeds.get(project_id, piped_id))


async def encrypt(
    stores: Stores, project_id: str, piped_id: str, plaintext: str, *, base64: bool
) -> str:
    """Returns the text encrypted with the public key that the piped has reported."""
    return seal(await stores.pipeds.get(project_id, piped_id), plaintext, base64=base64)


async def restart(stores: Stores, requester: Requester, piped_id: str) -> command_pb2.Command:
    """Asks the piped to exit, so that its supervisor restarts it. Returns the command."""
    piped = await stores.pipeds.get(requester.project_id, piped_id)

    def make(at: datetime) -> command_pb2.Command:
        seconds = int(at.timestamp())
        return command_pb2.Command(
            id=new_id(),
            type=command_pb2.Command.RESTART_PIPED,
            piped_id=piped.id,
            project_id=piped.project_id,
            commander=requester.name,
            restart_piped=command_pb2.Command.RestartPiped(piped_id=piped.id),
            created_at=seconds,
            updated_at=seconds,
        )

    return await commands.issue(stores, requester, "RestartPiped", make)


async def report_meta(
    stores: Stores, agent: Agent, report: pipedservice.ReportPipedMetaRequest, now: Now
) -> piped_pb2.Piped:
    """Applies what an agent says of itself, and returns the piped.

    One that waits while another instance holds the lease is only known to be allowed: what it would
    work with must not replace what the other one works with. It reports again with the lease.
    """
    if agent.lease_epoch == 0:
        lease = await stores.leases.get(agent.project_id, agent.piped_id)
        if lease.instance_id:
            return await stores.pipeds.get(agent.project_id, agent.piped_id)
    return await stores.pipeds.update(
        agent.project_id, agent.piped_id, lambda piped: describe(piped, report, now())
    )


def describe(piped: piped_pb2.Piped, report: pipedservice.ReportPipedMetaRequest, now: int) -> None:
    """Applies the description that a piped reports of itself when it starts."""
    piped.version = report.version
    piped.config = report.config
    piped.started_at = now
    del piped.cloud_providers[:]
    del piped.platform_providers[:]
    piped.platform_providers.extend(
        piped_pb2.Piped.PlatformProvider(name=older.name, type=older.type)
        for older in report.cloud_providers
    )
    piped.platform_providers.extend(report.platform_providers)
    del piped.plugins[:]
    piped.plugins.extend(report.plugins)
    del piped.repositories[:]
    piped.repositories.extend(report.repositories)
    piped.ClearField("secret_encryption")
    if report.HasField("secret_encryption"):
        piped.secret_encryption.CopyFrom(report.secret_encryption)


def redact(piped: piped_pb2.Piped) -> piped_pb2.Piped:
    """Returns a copy that may be shown: without the hashes of the keys."""
    shown = piped_pb2.Piped()
    shown.CopyFrom(piped)
    for key in shown.keys:
        key.hash = REDACTED
    return shown


async def add_key(stores: Stores, project_id: str, piped_id: str, *, creator: str, now: Now) -> str:
    """Add one more key, so that the piped can change over; returns it. Older ones stay valid."""
    key = new_piped_key()
    kept = piped_pb2.PipedKey(hash=quick_hash(key), creator=creator, created_at=now())

    def edit(piped: piped_pb2.Piped) -> None:
        if len(piped.keys) >= KEYS_AT_ONCE:
            raise StateError(
                f"the piped {piped.name!r} has {len(piped.keys)} keys already",
                hint="delete the old one first",
            )
        piped.keys.insert(0, kept)

    await stores.pipeds.update(project_id, piped_id, edit)
    return key


async def delete_old_keys(stores: Stores, project_id: str, piped_id: str) -> None:
    """Deletes all keys but the newest; the others are refused from the next call on."""

    def edit(piped: piped_pb2.Piped) -> None:
        if piped.keys:
            newest = max(piped.keys, key=lambda key: key.created_at)
            kept = piped_pb2.PipedKey()
            kept.CopyFrom(newest)
            del piped.keys[:]
            piped.keys.append(kept)

    await stores.pipeds.update(project_id, piped_id, edit)


async def set_desired_version(
    stores: Stores, project_id: str, piped_ids: Iterable[str], version: str
) -> None:
    """Sets the version that the launchers of these pipeds run: for all of them or for none."""
    limits.text("version", version, limits.NAME)
    if not version.startswith("v"):
        raise ConfigError(
            f"invalid request: version: {version!r} is no version",
            hint="such as v0.50.0",
        )

    def edit(piped: piped_pb2.Piped) -> None:
        piped.desired_version = version

    async def work(transaction: Transaction) -> None:
        for piped_id in piped_ids:
            await stores.pipeds.update_in(transaction, project_id, piped_id, edit)

    await stores.database.write(work)


async def list_pipeds(
    stores: Stores, presence: Presence, project_id: str, now: Now, *, enabled: bool | None = None
) -> list[piped_pb2.Piped]:
    """Returns the pipeds with their connection status, and their keys without the hashes."""
    stats = await stores.piped_stats.list_by_project(project_id)
    pipeds = await stores.pipeds.list_by_project(project_id)
    online = await _choose_online(presence, stats, [piped.id for piped in pipeds], now())
    shown = []
    for piped in pipeds:
        if enabled is not None and piped.disabled is enabled:
            continue
        one = redact(piped)
        one.status = _status(piped, online)
        shown.append(one)
    return shown


def _status(piped: piped_pb2.Piped, online: set[str]) -> piped_pb2.Piped.ConnectionStatus.ValueType:
    if piped.id in online:
        return piped_pb2.Piped.ONLINE
    return piped_pb2.Piped.OFFLINE if piped.started_at else piped_pb2.Piped.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedReport:
    """A piped with what is known of it at the moment."""

    piped: piped_pb2.Piped
    plugins: list[push_pb2.PluginState]
    alarms: list[str]
    last_seen_at: int
    """Unix seconds: when it reported last, or now while it is connected; 0 is never."""


async def list_reports(
    stores: Stores, presence: Presence, project_id: str, now: Now
) -> list[PipedReport]:
    """Returns all pipeds of the project, without their keys."""
    states = await stores.plugin_states.list_by_project(project_id)
    stats = await stores.piped_stats.list_by_project(project_id)
    alarms = await stores.alarms.list_by_project(project_id, since=now() - ALARM_SECONDS)
    pipeds = await stores.pipeds.list_by_project(project_id)
    connected = await presence.find_connected(piped.id for piped in pipeds)
    online = await _choose_online(presence, stats, [piped.id for piped in pipeds], now())
    listed = []
    for piped in pipeds:
        shown = piped_pb2.Piped()
        shown.CopyFrom(piped)
        del shown.keys[:]
        stat = stats.get(piped.id)
        shown.status = _status(piped, online)
        state = states.get(piped.id)
        listed.append(
            PipedReport(
                piped=shown,
                plugins=list(state.message.plugins) if state else [],
                alarms=alarms.get(piped.id, []),
                last_seen_at=int(now())
                if piped.id in connected
                else stat.updated_at
                if stat
                else 0,
            )
        )
    return listed


async def find_online(stores: Stores, presence: Presence, project_id: str, now: Now) -> set[str]:
    """Returns the ids of the pipeds that watch, or have reported lately."""
    stats = await stores.piped_stats.list_by_project(project_id)
    pipeds = await stores.pipeds.list_by_project(project_id)
    return await _choose_online(presence, stats, [piped.id for piped in pipeds], now())


async def _choose_online(
    presence: Presence, stats: Mapping[str, ReportedMessage[Any]], ids: Sequence[str], now: float
) -> set[str]:
    connected = await presence.find_connected(ids)
    since = await presence.find_seconds_since_connected(ids)
    reported = {each: now - stats[each].updated_at for each in ids if each in stats}
    return connected | {
        each for each in reported if counts_as_online(reported[each], since.get(each))
    }


def counts_as_online(report_seconds: float, connection_seconds: float | None) -> bool:
    """Returns whether a piped that is not connected lives, by its last report.

    Both are seconds ago: its last report, and the end of its last connection, if it had one. One
    that watches and was killed reports nothing after that.
    """
    if report_seconds >= ONLINE_SECONDS:
        return False
    if connection_seconds is None or connection_seconds < RECONNECT_SECONDS:
        return True
    return report_seconds < connection_seconds
