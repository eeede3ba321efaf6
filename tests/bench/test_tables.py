"""Results files and the README tables made from them."""

from pathlib import Path

import pytest

from voxserve.bench.tables import (
    RESULTS_DIR,
    Figure,
    Results,
    load_results,
    markdown_table,
    rendered,
)

ROOT = Path(__file__).resolve().parents[2]


def make_results() -> Results:
    return Results(
        device="a laptop",
        date="2026-01-01",
        versions={"torch": "2.13"},
        settings={"seed": 0},
        command="voxserve check",
        rows=(
            Figure("step, batch 1", 4.0, "ms", must=5, aim=3),
            Figure("speed", 2.0, "x", must=2.5, aim=4, better="higher"),
        ),
    )


def test_verdict_follows_the_direction_of_better():
    assert Figure("a", 3.0, "ms", must=5, aim=3).verdict() == "aim"
    assert Figure("a", 4.0, "ms", must=5, aim=3).verdict() == "must"
    assert Figure("a", 6.0, "ms", must=5, aim=3).verdict() == "missed"
    assert Figure("a", 6.0, "x", must=5, aim=7, better="higher").verdict() == "must"
    assert Figure("a", None, "ms", must=5).verdict() == "not measured"
    assert Figure("a", 1.0, "ms").verdict() == ""


def test_save_and_load_round_trip(tmp_path: Path):
    path = tmp_path / "r.json"
    make_results().save(path)
    assert load_results(path) == make_results()


def test_a_broken_file_says_what_is_wrong(tmp_path: Path):
    path = tmp_path / "r.json"
    path.write_text('{"device": "x"}')
    with pytest.raises(ValueError, match="rows"):
        load_results(path)


def test_block_is_rewritten_and_picks_figures(tmp_path: Path):
    make_results().save(tmp_path / "cpu.json")
    text = "a\n<!-- results: cpu figures=speed -->\nold\n<!-- end -->\nb\n"
    new = rendered(text, tmp_path)
    assert "| speed | 2 x | 2.5 | 4 | missed |" in new
    assert "step, batch 1" not in new
    assert "old" not in new
    assert rendered(new, tmp_path) == new


def test_every_committed_results_file_loads():
    paths = list(RESULTS_DIR.glob("*.json"))
    assert paths
    for path in paths:
        assert markdown_table(load_results(path))


def test_readme_tables_are_up_to_date():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert rendered(readme) == readme, "run: python -m voxserve.bench.tables"
