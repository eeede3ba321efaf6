"""A training snapshot is read aloud and its word error rate written down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from voxserve.bench import snapshot_wer, wer
from voxserve.models.vox_tiny.train import snapshot
from voxserve.models.vox_tiny.train.network import LanguageModel, ModelShape

_SHAPE = ModelShape(hidden=32, layers=4, heads=4, ffn=32, depth_hidden=24, depth_ffn=32)


class _Listener:
    """Hears the last word of everything wrong."""

    def __init__(self, threads: int) -> None:
        self.samples = 0

    def words(self, text: str) -> list[str]:
        return text.split()

    def hear(self, samples: np.ndarray, sample_rate_hz: int) -> str:
        assert len(samples) > 0
        assert sample_rate_hz == 24_000
        return "open the"


def test_snapshots_are_read_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot.save(LanguageModel(_SHAPE).state_dict(), _SHAPE, tmp_path / "best")
    monkeypatch.setattr(wer, "Recogniser", _Listener)
    monkeypatch.setattr(
        wer, "sentences", lambda: [wer.Sentence("short", "Open 2.", "open the door")]
    )
    monkeypatch.setattr(snapshot_wer, "_MOST_FRAMES", 4)
    snapshot_wer.main(
        [f"--snapshot={tmp_path / 'best'}", "--seeds=0", f"--into={tmp_path / 'wer.json'}"]
    )
    found = json.loads((tmp_path / "wer.json").read_text("utf-8"))
    assert found["rates"]["short"][0] == pytest.approx(1 / 3)
    assert found["pieces"] == 1
