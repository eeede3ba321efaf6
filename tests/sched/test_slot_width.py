"""The slot table looks at as many slots as are needed, and grows under steps in flight."""

from __future__ import annotations

import numpy as np

from tests.sched.stories import entered, world
from voxserve.core.request import RequestSpec, RequestState
from voxserve.sched.state import WIDTH_STEP, ActiveRequest, SlotTable

MANY = 2 * WIDTH_STEP + 10


def opened(table: SlotTable, count: int) -> list[ActiveRequest]:
    specs = [RequestSpec(i, 0.0, (8,), 10, (4, 10)) for i in range(count)]
    requests = [ActiveRequest(spec) for spec in specs]
    for request in requests:
        table.open(request, 0.0, 0)
    return requests


def test_the_columns_follow_what_is_open() -> None:
    table = SlotTable(4 * WIDTH_STEP, 4)
    assert len(table.frames) == table.width == WIDTH_STEP
    requests = opened(table, WIDTH_STEP)
    table.frames[:] = 7
    opened(table, 1)
    assert len(table.frames) == len(table.ramp) == table.width == 2 * WIDTH_STEP
    assert table.frames[:WIDTH_STEP].tolist() == [7] * WIDTH_STEP
    assert int(table.frames[WIDTH_STEP]) == 0
    mask = np.ones(WIDTH_STEP, dtype=np.int64)
    assert table.widened(mask).tolist() == [1] * WIDTH_STEP + [0] * WIDTH_STEP
    for request in requests:
        table.close(request.slot)
    assert table.width == 2 * WIDTH_STEP, "the last one is still open"
    table.close(WIDTH_STEP)
    assert table.width == WIDTH_STEP
    assert [request.slot for request in opened(table, 3)] == [0, 1, 2]


def test_readers_count_chunks_while_the_width_changes() -> None:
    table = SlotTable(4 * WIDTH_STEP, 4)
    opened(table, WIDTH_STEP + 1)
    table.num_ready[:] = 3
    table.request_id = table.request_id[:WIDTH_STEP]  # as another thread may see it
    assert table.num_undelivered() == 3 * (WIDTH_STEP + 1)


def test_no_table_is_wider_than_its_slots() -> None:
    table = SlotTable(5, 4)
    opened(table, 5)
    assert table.width == 5


def test_requests_that_join_under_steps_in_flight_all_end() -> None:
    told = world({"num_slots": 4 * WIDTH_STEP}, max_running=4 * WIDTH_STEP, overload="off")
    for index in range(MANY):
        told.arrive(0.001 * index, index, 40)
    told.run()
    for index in range(MANY):
        entered(told, index, RequestState.DONE)
    assert told.scheduler.num_running == 0
