"""Figures of sweeps: one line per configuration, the Pareto front, grouped bars."""

from __future__ import annotations

import json

from voxserve.viz.sweeps import bars_figure, pareto_figure, sweep_figure
from voxserve.viz.validation import main, validation_figure


def test_one_line_per_configuration_over_the_rate():
    rows = [
        ({"rate_rps": rate, "sm_split": split}, {"attainment": share})
        for split in ("100/32", "none")
        for rate, share in ((50.0, 0.5), (40.0, 1.0))
    ]
    figure = sweep_figure(rows)
    assert [line.name for line in figure.data] == ["sm_split 100/32", "sm_split none"]
    assert list(figure.data[0].x) == [40.0, 50.0]
    assert list(figure.data[0].y) == [100.0, 50.0]
    assert len({line.marker.symbol for line in figure.data}) == 2


def test_the_front_holds_what_nothing_beats_in_both():
    points = [("a", 40.0, 100.0), ("b", 50.0, 150.0), ("c", 45.0, 160.0), ("d", 60.0, 200.0)]
    front = pareto_figure(points).data[1]
    assert list(zip(front.x, front.y, strict=True)) == [(100.0, 40.0), (150.0, 50.0), (200.0, 60.0)]


def test_bars_stand_side_by_side():
    groups = [("100/32", {"stated": 48.0, "simulated": 47.0}), ("none", {"simulated": 42.0})]
    figure = bars_figure(groups, "Splits")
    assert [bar.name for bar in figure.data] == ["stated", "simulated"]
    assert list(figure.data[0].y) == [48.0, None]


def test_the_validation_figure_reads_what_the_paper_states(tmp_path):
    def row(figure, value, unit="requests/s"):
        return {"figure": figure, "value": value, "unit": unit}

    results = {
        "device": "simulated, h100",
        "rows": [
            row("figure 12, split 84/48, capacity at 90% (paper: 44-46)", 46.0),
            row("figure 10, time sharing, capacity at 90%", 40.0),
            row("figure 11, prefill_first at 40 requests/s, attainment", 1.0, "share"),
        ],
    }
    simulated, stated = validation_figure(results).data
    assert list(simulated.y) == [46.0, 40.0]
    assert list(stated.y) == [45.0, None]
    path = tmp_path / "paper.json"
    path.write_text(json.dumps(results))
    assert main([str(path)]) == 0
    assert "plotly" in (tmp_path / "paper.html").read_text()
