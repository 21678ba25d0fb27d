# SPDX-License-Identifier: Apache-2.0
"""The stores of all kinds of entities, over one database."""

from dataclasses import dataclass

from pipecd_controlplane.store.alarms import Alarms
from pipecd_controlplane.store.api_key_facts import ApiKeyFacts
from pipecd_controlplane.store.api_keys import ApiKeys
from pipecd_controlplane.store.application_records import AnalysisResults, LiveStateRecords
from pipecd_controlplane.store.applications import Applications
from pipecd_controlplane.store.audit import Audit
from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.chains import Chains
from pipecd_controlplane.store.commands import Commands
from pipecd_controlplane.store.control_records import (
    ApplicationControls,
    DeploymentRecords,
    ProjectRulesRecords,
)
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.deployments import Deployments
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.events import Events
from pipecd_controlplane.store.hooks import Hooks
from pipecd_controlplane.store.leases import LeaseRecords
from pipecd_controlplane.store.log_lines import LogLines
from pipecd_controlplane.store.log_sealing import LogSealing
from pipecd_controlplane.store.outcomes import Outcomes
from pipecd_controlplane.store.piped_records import (
    PipedStats,
    PluginStateRecords,
    QueueRecords,
    UnregisteredApplications,
)
from pipecd_controlplane.store.pipeds import Pipeds
from pipecd_controlplane.store.projects import Projects
from pipecd_controlplane.store.purge import Purge
from pipecd_controlplane.store.push_commands import PushCommands
from pipecd_controlplane.store.sessions import Sessions
from pipecd_controlplane.store.shared_objects import SharedObjectRecords
from pipecd_controlplane.store.stage_logs import MAX_BYTES, StageLogs
from pipecd_controlplane.store.traces import Traces
from pipecd_controlplane.store.value_sealing import ValueSealing


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores, one per kind of entity."""

    database: Database
    projects: Projects
    pipeds: Pipeds
    api_keys: ApiKeys
    api_key_facts: ApiKeyFacts
    sessions: Sessions
    applications: Applications
    deployments: Deployments
    commands: Commands
    push_commands: PushCommands
    stage_logs: StageLogs
    log_lines: LogLines
    plugin_states: PluginStateRecords
    piped_stats: PipedStats
    unregistered: UnregisteredApplications
    shared_objects: SharedObjectRecords
    leases: LeaseRecords
    alarms: Alarms
    outcomes: Outcomes
    events: Events
    traces: Traces
    chains: Chains
    live_states: LiveStateRecords
    analysis_results: AnalysisResults
    controls: ApplicationControls
    records: DeploymentRecords
    rules: ProjectRulesRecords
    queues: QueueRecords
    hooks: Hooks
    purge: Purge
    audit: Audit
    log_sealing: LogSealing
    value_sealing: ValueSealing
    blobs: BlobStore | None
    """None in programs that look at rows alone."""


def stores(
    database: Database,
    now: Now,
    *,
    max_stage_log_bytes: int = MAX_BYTES,
    blobs: BlobStore | None = None,
) -> Stores:
    return Stores(
        database=database,
        projects=Projects(database, now),
        pipeds=Pipeds(database, now),
        api_keys=ApiKeys(database, now),
        api_key_facts=ApiKeyFacts(database),
        sessions=Sessions(database),
        applications=Applications(database, now),
        deployments=Deployments(database, now),
        commands=Commands(database, now),
        push_commands=PushCommands(database),
        stage_logs=StageLogs(database, blobs, max_bytes=max_stage_log_bytes),
        log_lines=LogLines(database, blobs),
        plugin_states=PluginStateRecords(database, now),
        piped_stats=PipedStats(database, now),
        unregistered=UnregisteredApplications(database, now),
        shared_objects=SharedObjectRecords(database, blobs),
        leases=LeaseRecords(database),
        alarms=Alarms(database, now),
        outcomes=Outcomes(database),
        events=Events(database, now),
        traces=Traces(database, now),
        chains=Chains(database, now),
        live_states=LiveStateRecords(database, now, blobs),
        analysis_results=AnalysisResults(database, now),
        controls=ApplicationControls(database, now),
        records=DeploymentRecords(database, now),
        rules=ProjectRulesRecords(database, now),
        queues=QueueRecords(database, now),
        hooks=Hooks(database),
        purge=Purge(database),
        audit=Audit(database),
        log_sealing=LogSealing(database, now),
        value_sealing=ValueSealing(database, now),
        blobs=blobs,
    )
