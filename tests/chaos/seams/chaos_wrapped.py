# SPDX-License-Identifier: Apache-2.0
"""The functions of our programs around which the kit can end a process, each place with a name.

Nothing of this is in the programs: `sitecustomize` puts it there when the kit starts them. The shim
runs isolated, and has its places in its own code. `@` stands for `.before` and `.after`.
"""

_FUNCTIONS = {
    # What piped gets from git, and the trees that stages work in.
    "piped.git-fetch@": ("pipecd_piped.git.mirror", "MirrorFolder.fetch"),
    "piped.tree-switch@": ("pipecd_piped.source.worktree", "Worktree.checkout"),
    "piped.tree-checked-out.before": ("pipecd_piped.source.worktree", "write_dot_git"),
    "piped.tree-back.before": ("pipecd_piped.source.provider", "SourceProvider.give_back"),
    # A commit becomes a deployment, which is planned.
    "piped.create@": ("pipecd_piped.trigger.calls", "ControlPlaneCalls.create"),
    "piped.plan@": ("pipecd_piped.plan.planner", "Planner.plan"),
    "piped.planned.after": ("pipecd_piped.report.statuses", "StatusReporter.report_planned"),
    # A stage is begun, executed, told.
    "piped.stage.before": ("pipecd_piped.schedule.stages", "StageRunner.run"),
    "piped.execute@": ("pipecd_piped.schedule.stage", "execute_on"),
    "piped.stage-told.after": ("pipecd_piped.schedule.stages", "StageRunner._end"),
    "piped.completed@": ("pipecd_piped.report.statuses", "StatusReporter.report_completed"),
    # The journal of reports, and their delivery.
    "piped.outbox-append@": ("pipecd_piped.report.journal", "Journal.put"),
    "piped.outbox-sync@": ("pipecd_piped.report.journal", "Journal.sync"),
    "piped.outbox-taken@": ("pipecd_piped.report.journal", "Journal.mark_delivered"),
    "piped.outbox-rewrite@": ("pipecd_piped.report.journal", "Journal._rewrite"),
    "piped.deliver@": ("pipecd_piped.controlplane.client", "ControlPlane.deliver_named"),
    # What the control plane pushes, and the lease, whose epoch is kept.
    "piped.push@": ("pipecd_piped.controlplane.watch", "Watch._take"),
    "piped.lease@": ("pipecd_piped.controlplane.epoch", "write_epoch"),
    # What plugins ask of piped.
    "piped.plugin-start.after": ("pipecd_piped.programs.process", "_start"),
    "piped.log-taken.after": ("pipecd_piped.report.logs", "SpooledStageLogs.report"),
    "piped.log-closed@": ("pipecd_piped.report.logs", "SpooledStageLogs.checkpoint"),
    "piped.log-append@": ("pipecd_piped.report.spool", "Spool.append"),
    "piped.log-sent@": ("pipecd_piped.report.spool", "Spool.mark_delivered"),
    "piped.metadata-saved.after": ("pipecd_piped.report.metadata", "Values.put"),
    # The records of scripts go when their deployment has ended.
    "piped.records-removed@": ("pipecd_piped.scripts.records", "forget"),
    # What lives of a stage is ended before anything follows it.
    "piped.scripts-end@": ("pipecd_piped.scripts.ending", "RunningScripts.end"),
    # A stage in any plugin.
    "plugin.stage@": ("pipecd_sdk._execution", "execute"),
    "plugin.log-closed@": ("pipecd_sdk._glue.stage_log", "StageLogSender._finish"),
    # What the control plane keeps.
    "control plane.commit@": ("pipecd_controlplane.store.sqlite.writer", "Writer._commit"),
}

_OF_STORIES = {
    # A chain is made, and its later blocks learn that they may begin, or never may.
    "piped.create-chain@": ("pipecd_piped.trigger.calls", "ControlPlaneCalls.create_chain"),
    "piped.chain-turn.after": ("pipecd_piped.schedule.chains", "ChainTurns._is_settled"),
    "piped.chain-refused@": ("pipecd_piped.schedule.controller", "Controller.refuse_waiting"),
    # A newer deployment takes the place of an older one.
    "piped.supersede@": ("pipecd_piped.schedule.run", "DeploymentRun.supersede"),
    "piped.superseded-noted@": ("pipecd_piped.schedule.run", "DeploymentRun._note_superseded"),
    # Locks and places are given out; a commit is put off.
    "piped.admitted@": ("pipecd_piped.schedule.admission", "Admission._take"),
    "piped.given-back@": ("pipecd_piped.schedule.admission", "Admission.give_back"),
    "piped.rejected@": ("pipecd_piped.trigger.history", "TriggerHistory.mark_rejected"),
    # A person names what is deployed, or decides about a stage that failed.
    "piped.asked@": ("pipecd_piped.trigger.asked", "AskedCommits._find"),
    "piped.retry-chosen@": ("pipecd_piped.schedule.choices", "Choices.wait"),
    # What people and rules say has changed.
    "piped.rules-heeded@": ("pipecd_piped.schedule.controller", "Controller._heed_rules"),
}
"""Those that only some stories reach, see `stories.py`: drawn with them."""

_POSTGRES = "pipecd_controlplane.store.postgres.database"
_REPLICATED = "pipecd_controlplane.usecases.replicated"
_OF_FLEETS = {
    # A unit of work on PostgreSQL: before it, when all is written and not committed, after it.
    "control plane.unit@": (_POSTGRES, "PostgresDatabase._run_and_commit"),
    "control plane.unit-written.after": (_POSTGRES, "PostgresDatabase._write_last"),
    # What control planes hear of each other, and the session that they hear it in.
    "control plane.heard@": (f"{_REPLICATED}.bus", "ReplicatedBus.hear"),
    "control plane.beat@": (f"{_REPLICATED}.heartbeat", "Heartbeat.beat"),
    "control plane.session@": (
        "pipecd_controlplane.store.postgres.session",
        "ServerSession._begin",
    ),
}
"""Those that only control planes with one database reach: drawn with them."""


def _spell(functions: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    return {
        place: function
        for name, function in functions.items()
        for place in (
            (name.replace("@", ".before"), name.replace("@", ".after")) if "@" in name else (name,)
        )
    }


OF_STORIES = tuple(_spell(_OF_STORIES))
OF_FLEETS = tuple(_spell(_OF_FLEETS))
WRAPPED = _spell(_FUNCTIONS | _OF_STORIES | _OF_FLEETS)
"""Module and function by the name of the place, which ends with `.before` or `.after`."""

LATER = (
    "piped.scripts-end.before",
    "piped.scripts-end.after",
    "control plane.ReportProgress",
)
"""Drawn beside the others: a place among them would change what older seeds draw."""

AT_START = frozenset(
    {
        "piped.outbox-rewrite.before",
        "piped.outbox-rewrite.after",
        "piped.lease.before",
        "piped.lease.after",
    }
)
"""Reached only while piped starts: another death must come before."""
