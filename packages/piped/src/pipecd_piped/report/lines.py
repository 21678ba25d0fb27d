# SPDX-License-Identifier: Apache-2.0
"""Packs log lines into records that fit into a message."""

from collections.abc import Iterable
from typing import Final

from pipecd_piped.report.spool import ChunkKind
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as pb

LARGEST_REQUEST: Final = 1024 * 1024
"""Bytes of lines that are combined into one request."""

LONGEST_BLOCK: Final = 8 * 1024 * 1024
"""Bytes of a block; a longer one is truncated to fit into a message. Blocks of our SDK are much
smaller."""


def records_of(kind: ChunkKind, blocks: Iterable[LogBlock]) -> list[tuple[ChunkKind, bytes]]:
    """Returns lines as records of limited size; only the last one can be the end of a log.

    A checkpoint or an end without lines is one record; no lines at all are none.
    """
    records: list[tuple[ChunkKind, bytes]] = []
    gathered: list[LogBlock] = []
    size = 0
    rest = ChunkKind.CHECKPOINT if kind is ChunkKind.END else kind
    for block in blocks:
        fitting = _cut_to_fit(block)
        length = fitting.ByteSize()
        if gathered and size + length > LARGEST_REQUEST:
            records.append((rest, _pack(gathered)))
            gathered, size = [], 0
        gathered.append(fitting)
        size += length
    if gathered or kind is not ChunkKind.LINES:
        records.append((kind, _pack(gathered)))
    return records


def _pack(blocks: Iterable[LogBlock]) -> bytes:
    return pb.ReportStageLogsRequest(blocks=blocks).SerializeToString()


def _cut_to_fit(block: LogBlock) -> LogBlock:
    if len(block.log) * 4 <= LONGEST_BLOCK:
        return block
    encoded = block.log.encode()
    if len(encoded) <= LONGEST_BLOCK:
        return block
    cut = LogBlock()
    cut.CopyFrom(block)
    left_out = len(encoded) - LONGEST_BLOCK
    cut.log = encoded[:LONGEST_BLOCK].decode(errors="ignore") + (
        f"… {left_out} bytes of this line are left out"
    )
    return cut
