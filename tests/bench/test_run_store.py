"""Packing runs into few files and going on from them."""

import json
from pathlib import Path

import pytest

from voxserve.bench.run_store import pack, unpack
from voxserve.core.errors import InvalidInput


def filled(store: Path) -> Path:
    for name in ("libritts-10/5rps-seed0.json.gz", "traces/a.trace.jsonl.gz", "idle-10.json"):
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (store / "libritts-10" / "half.part").write_text("not complete")
    return store


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_is_packed_is_unpacked_but_halves(tmp_path: Path):
    written = pack(filled(tmp_path / "store"), tmp_path / "out")
    assert [path.name for path in written] == ["runs.tar", "traces.tar"]
    unpack([tmp_path / "out"], tmp_path / "all", with_traces=True)
    assert names(tmp_path / "all") == {
        "libritts-10/5rps-seed0.json.gz",
        "traces/a.trace.jsonl.gz",
        "idle-10.json",
    }
    unpack([tmp_path / "out"], tmp_path / "runs")
    assert not (tmp_path / "runs" / "traces").exists()


def test_sources_add_up(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    pack(filled(tmp_path / "store"), first)
    (second / "seedtts-10").mkdir(parents=True)
    (second / "seedtts-10" / "9rps-seed1.json.gz").write_text("another")
    unpack([first / "runs.tar", second], tmp_path / "all")
    assert {"idle-10.json", "seedtts-10/9rps-seed1.json.gz"} <= names(tmp_path / "all")


def test_what_is_no_archive_is_named(tmp_path: Path):
    path = tmp_path / "runs.tar"
    path.write_text("nothing")
    with pytest.raises(InvalidInput, match=r"runs\.tar: not an archive of runs"):
        unpack([path], tmp_path / "all")
    with pytest.raises(InvalidInput, match="missing"):
        unpack([tmp_path / "missing"], tmp_path / "all")


def test_runs_under_other_settings_are_not_pooled(tmp_path: Path):
    sources = [tmp_path / split for split in ("100-32", "92-40")]
    for source in sources:
        described = source / "libritts-10" / "configuration.json"
        described.parent.mkdir(parents=True)
        described.write_text(json.dumps({"settings": {"sm_split": source.name}}))
    with pytest.raises(InvalidInput, match="libritts-10 was measured with .*92-40.*100-32"):
        unpack(sources, tmp_path / "all")
