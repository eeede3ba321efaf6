"""Capacity beside a busy cell, in a real ipykernel with a simulated GPU."""

from __future__ import annotations

import json

import pytest

from voxserve.bench.kernel_load import Heard, measure, next_busy_rate, results_of

OPTIONS = {
    "model": "vox-tiny",
    "device": "sim:h200",
    "weights": None,
    "settings": {"chunk_ramp": "10"},
    "workload": "seedtts",
    "start": 4.0,
    "seconds": 2.0,
    "most_runs": 1,
    "budget_s": 60.0,
}


@pytest.mark.notebook
def test_both_searches_run_in_the_kernel():
    told: list[str] = []
    found = measure(OPTIONS, lambda name, _: told.append(name))
    assert told == ["start", "quiet", "busy"]
    assert "errors" not in found
    assert list(found["quiet"]["attainment"]) == ["4"]
    assert [row["rate_rps"] for row in found["busy"]["rates"]] == [4.0]
    assert 0.0 <= found["kept_share"]


@pytest.mark.notebook
def test_an_error_in_the_kernel_is_told():
    found = measure({**OPTIONS, "model": "nothing"}, lambda *_: None)
    assert "no model 'nothing'" in found["errors"][0]["told"]
    assert found["quiet"]["capacity_rps"] is found["kept_share"] is None


def test_what_was_found_before_a_failure_is_kept():
    heard = Heard(lambda *_: None)
    parts = [
        ("start", {"seconds": 9.0}),
        ("quiet", {"rate_rps": 100.0, "attainment": 0.95}),
        ("quiet", {"rate_rps": 130.0, "attainment": 0.2}),
        ("error", {"where": "busy"}),
    ]
    lines = "".join(f"kernel-load:{json.dumps(part)}\n" for part in parts)
    cut = lines.index("rate_rps") + 3  # a message may end anywhere
    for text in ("a user's line\n", lines[:cut], lines[cut:]):
        heard.listen({"msg_type": "stream", "content": {"name": "stdout", "text": text}})
    found = heard.found()
    assert found["quiet"]["capacity_rps"] == 100.0
    assert found["busy"]["capacity_rps"] is None
    assert found["errors"] == [{"where": "busy"}]


def test_rates_beside_a_busy_cell():
    assert next_busy_rate({}, 120.0) == 120.0
    assert next_busy_rate({120.0: 0.97}, 120.0) == 0.0, "nothing is lost"
    assert next_busy_rate({120.0: 0.5}, 120.0) == 108.0
    assert 108.0 < next_busy_rate({120.0: 0.5, 108.0: 0.95}, 120.0) < 120.0
    assert 0.0 < next_busy_rate({120.0: 0.5, 108.0: 0.6}, 120.0) < 108.0


def test_what_was_found_becomes_a_results_file():
    def search(rps: float, delay_ms: float) -> dict[str, object]:
        rows = [{"rate_rps": rps, "host_delay_max_ms": delay_ms, "turn_p99_ms": 2.0}]
        return {"rates": rows, "capacity_rps": rps}

    found = {"quiet": search(100.0, 5.0), "busy": search(85.0, 9.0), "kept_share": 0.85}
    about = {"device": "a GPU", "date": "2026-11-29", "versions": {}, "settings": {}}
    results = results_of(found, about, "a command")
    rows = {row.figure: row for row in results.rows}
    assert rows["longest host delay there, cell computing in pure Python"].value == 9.0
    kept = rows["capacity kept beside the computing cell"]
    assert (kept.value, kept.must, kept.verdict()) == (0.85, 0.9, "missed")
    nothing = {"rates": [], "capacity_rps": None}
    found = {"quiet": nothing, "busy": nothing, "kept_share": None}
    verdicts = {row.verdict() for row in results_of(found, about, "a command").rows}
    assert verdicts == {"not measured"}
