# SPDX-License-Identifier: Apache-2.0
"""Reports of a piped about an application: each report replaces the previous one."""

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.versioned_records import VersionedRecords
from pipecd_wire.model import analysis_result_pb2, application_live_state_pb2


class LiveStateRecords(VersionedRecords[application_live_state_pb2.ApplicationLiveStateSnapshot]):
    """The live state of each application: what really runs."""

    table = schema.live_state
    key = "application_id"
    message = application_live_state_pb2.ApplicationLiveStateSnapshot
    kind = ChangeKind.LIVE_STATE


class AnalysisResults(VersionedRecords[analysis_result_pb2.AnalysisResult]):
    """The baseline of each application's next analysis, for v0 pipeds."""

    table = schema.analysis_result
    key = "application_id"
    message = analysis_result_pb2.AnalysisResult
