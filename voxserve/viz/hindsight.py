"""What was running at a past moment, told from a trace that knows how it went on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from voxserve.core.chunk import Urgency
from voxserve.core.events import ChunkLife, Record, RequestChange
from voxserve.core.live import LiveChunks, Stage
from voxserve.core.request import RequestState


class Hindsight:
    """The chunks of a whole trace, by time.

    Args:
        records: Complete: a chunk's record tells when it was made.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        begun_s: dict[int, float] = {}  # by request: its arrival, then its last delivery
        rows: list[tuple[float, ...]] = []
        for record in records:
            if isinstance(record, RequestChange) and record.state is RequestState.WAITING:
                begun_s[record.request_id] = record.time_s
            elif isinstance(record, ChunkLife):
                self._take(rows, begun_s, record)
        self._rows = np.array(rows, np.float64).reshape(-1, 8)

    @staticmethod
    def _take(rows: list[tuple[float, ...]], begun_s: dict[int, float], chunk: ChunkLife) -> None:
        if chunk.delivered_s is None or chunk.launched_s is None or chunk.deadline_s is None:
            return
        from_s = begun_s.get(chunk.request_id, chunk.ready_s)
        begun_s[chunk.request_id] = chunk.delivered_s
        is_urgent = float(chunk.urgency is Urgency.URGENT)
        times = (from_s, chunk.ready_s, chunk.launched_s, chunk.delivered_s, chunk.deadline_s)
        rows.append((chunk.request_id, chunk.index, is_urgent, *times))

    def at(self, now_s: float) -> LiveChunks:
        """The chunks under way at `now_s`; what they still need is what they did need."""
        is_shown = (self._rows[:, 3] <= now_s) & (now_s < self._rows[:, 6])
        request_id, index, is_urgent, _, ready_s, launched_s, delivered_s, due_s = self._rows[
            is_shown
        ].T
        generate_s = np.maximum(ready_s - now_s, 0.0)
        decode_s = delivered_s - np.maximum(launched_s, now_s)
        stage = np.where(launched_s <= now_s, Stage.IN_FLIGHT, Stage.READY)
        return LiveChunks(
            time_s=now_s,
            request_id=request_id.astype(np.int64),
            index=index.astype(np.int64),
            stage=np.where(generate_s > 0.0, Stage.GENERATING, stage).astype(np.int8),
            is_urgent=is_urgent.astype(np.bool_),
            slack_s=due_s - now_s - generate_s - decode_s,
        )
