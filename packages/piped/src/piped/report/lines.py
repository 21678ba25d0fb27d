# SPDX-License-Identifier: Apache-2.0
"""Lines as they are kept and sent: packed into records that fit into a message."""

from collections.abc import Iterable
from typing import Final

from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.report.spool import ChunkKind

LARGEST_REQUEST: Final = 1024 * 1024
"""Bytes of lines that are put into one request when they have gathered."""

LONGEST_BLOCK: Final = 8 * 1024 * 1024
"""Bytes of a block; a longer one is cut, because no message has room for it. Blocks of our SDK are
much smaller."""


def records_of(kind: ChunkKind, blocks: Iterable[LogBlock]) -> list[tuple[ChunkKind, bytes]]:
    """Lines in as many records as they need, at least one; only the last can be an end."""
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
