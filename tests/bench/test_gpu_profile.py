"""The GPU profiler and the stage table over stages whose times are made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from voxserve.bench import gpu_profile, stages
from voxserve.bench.gpu_profile import profile_gpu
from voxserve.bench.split_chart import save_split_chart, split_table
from voxserve.bench.timing import Timing
from voxserve.core import profile as profiles
from voxserve.core.jobs import LaneName, Partition
from voxserve.core.profile import HostTime
from voxserve.core.settings import Split
from voxserve.runtime.executables import Sizes
from voxserve.sim.placing import expected_load, split_of

SIZES = Sizes(
    decode=(1, 64, 256), prefill=(64, 256), codec=(1, 16, 64), urgent=(1, 8), chunk_frames=(4, 10)
)


class MadeUpStages:
    """Times that follow rows and SMs; nothing is captured."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.is_closed = False

    def decode(self, rows: int, split: Split, partition: Partition) -> float:
        """A step costs a fixed part and one per row."""
        sms = 132 if partition is Partition.WHOLE else split.lm_sms
        return (2e-3 + 2e-5 * rows) * 132 / sms

    def prefill(self, rows: int) -> float:
        """A prompt each millisecond."""
        return 1e-3 * rows

    prompt_pass = prefill

    def codec(
        self, rows: int, frames: int, lane: LaneName, split: Split, partition: Partition
    ) -> float:
        """Chunks share the SMs."""
        sms = 132 if partition is Partition.WHOLE else split.codec_sms
        return (2e-4 + 1e-5 * rows * frames) * 132 / sms

    def alone(self, stage: float, replays: int = 20) -> Timing:
        """As long as it takes."""
        return Timing(stage, stage, stage, replays)

    def beside(self, stage: float, others: Mapping[float, float], replays: int = 20) -> Timing:
        """A tenth longer."""
        assert all(others.values())
        return self.alone(1.1 * stage, replays)

    def urgent_beside(self, stage: float, others: list[float], rounds: int = 20) -> Timing:
        """Twice as long."""
        assert others
        return self.alone(2 * stage, rounds)

    def close(self) -> None:
        """Nothing is held."""
        self.is_closed = True


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is touched."""
    monkeypatch.setattr(gpu_profile, "GpuStages", MadeUpStages)
    monkeypatch.setattr(gpu_profile, "_host_time", lambda _: HostTime(1e-3))
    cuda = gpu_profile.torch.cuda
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(cuda, "get_device_name", lambda _: "a GPU")


def _model() -> Any:
    info = SimpleNamespace(
        name="made-up",
        frame_s=0.08,
        sample_rate_hz=24000,
        codec_delay_samples=0,
        lookahead_frames=0,
        max_context_tokens=2048,
    )
    return SimpleNamespace(info=info, device="cuda")


@pytest.mark.usefixtures("made_up")
def test_a_profile_covers_every_split_and_can_be_planned_with(tmp_path: Path) -> None:
    """Saved, loaded again, and a split is chosen and drawn from it."""
    told: list[str] = []
    profile = profile_gpu(_model(), "made-up", SIZES, told.append)
    path = tmp_path / "made-up.json"
    profiles.save(profile, path)
    assert profiles.load(path).times == profile.times
    assert len(told) == 12
    alone = {(time.stage, time.sms) for time in profile.times if not time.beside}
    assert {sms for stage, sms in alone if stage == "codec"} == {0, *range(16, 97, 8)}
    assert {sms for stage, sms in alone if stage == "decode"} == {0, *range(36, 117, 8)}
    choice = split_of(profile, expected_load(profile, "libritts"))
    assert f"{choice.split}" in split_table(choice)
    chart = tmp_path / "chart.html"
    save_split_chart(choice, "made up", chart)
    assert "chosen" in chart.read_text()


def test_the_stage_table_has_every_promised_figure() -> None:
    """Figures of the table with their bounds, whatever the times are."""
    made: Any = MadeUpStages()
    rows = [
        *stages.decode_figures(made),
        *stages.codec_figures(made),
        *stages.prefill_figures(made),
        *stages.side_by_side_figures(made),
    ]
    assert sum(row.must is not None for row in rows) == 7 + 6 + 2 + 3 + 2
    assert len({row.figure for row in rows}) == len(rows)
    assert all(row.value is not None and row.value > 0 for row in rows)
