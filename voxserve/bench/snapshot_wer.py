"""Word error rate of a training snapshot of vox-tiny, before any file is packed.

    python -m voxserve.bench.snapshot_wer --snapshot DIR [--streamed] [--seeds 0 1 2] [--into FILE]

Texts pass the model's own normaliser and pieces; each piece is read alone. Needs the extra `test`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from voxserve.bench import wer
from voxserve.models.base import StateSize
from voxserve.models.request import PreparedRequest, SpeechOptions
from voxserve.models.text.normalise import normalise
from voxserve.models.text.pieces import cut
from voxserve.models.vox_tiny.load import load
from voxserve.models.vox_tiny.model import VoxTiny
from voxserve.models.vox_tiny.prompt import piece_budget
from voxserve.models.vox_tiny.train.reading import Reader

_MOST_FRAMES = 400


class SnapshotVoice:
    """Says texts with a snapshot and the bundled codec decoder.

    Attributes:
        runaways: Pieces that did not end in time.
        pieces: All pieces said.
    """

    def __init__(self, snapshot: Path, is_streamed: bool, longest_piece: int) -> None:
        """Loads both.

        Args:
            snapshot: Folder.
            is_streamed: Words join one by one.
            longest_piece: In characters.
        """
        self._reader, self._codec = Reader(snapshot), load("cpu")
        assert isinstance(self._codec, VoxTiny)
        self._is_streamed, self._longest = is_streamed, longest_piece
        self.runaways, self.pieces = 0, 0

    @property
    def sample_rate_hz(self) -> int:
        """Of what `say` returns."""
        return self._codec.info.sample_rate_hz

    def say(self, text: str, seed: int) -> NDArray[np.float32]:
        """Samples of a text."""
        codes: list[torch.Tensor] = []
        for piece in cut(normalise(text).text, self._longest):
            most = min(_MOST_FRAMES, piece_budget(len(piece)))
            codes.append(self._reader.read(piece, seed, most, self._is_streamed))
            self.pieces += 1
            self.runaways += len(codes[-1]) >= most
        return self._samples(torch.cat(codes), seed)

    def _samples(self, codes: torch.Tensor, seed: int) -> NDArray[np.float32]:
        frames = len(codes)
        if frames == 0:
            return np.zeros(self.sample_rate_hz // 10, np.float32)
        state = self._codec.allocate(StateSize(1, 0, 64, frames))
        self._codec.open_slot(state, 0, PreparedRequest((), frames, SpeechOptions(seed=seed)))
        state.codes[0, :frames] = codes.int()
        one = torch.zeros(1, dtype=torch.int32)
        samples = self._codec.codec(state, one, one, one + frames, torch.tensor([True]), frames)
        return samples[0].numpy()


def measure(
    snapshot: Path, is_streamed: bool, seeds: Sequence[int], longest_piece: int
) -> dict[str, object]:
    """Word error rates by kind of the bundled sentences, and runaways."""
    voice = SnapshotVoice(snapshot, is_streamed, longest_piece)
    readings = wer.read_aloud(
        voice.say, voice.sample_rate_hz, wer.sentences(), wer.Recogniser(1), seeds
    )
    return {
        "snapshot": str(snapshot),
        "streamed": is_streamed,
        "seeds": list(seeds),
        "rates": {r.kind: [r.rate, r.low, r.high] for r in wer.rates(readings)},
        "runaways": voice.runaways,
        "pieces": voice.pieces,
        "errors": [[r.sentence.text, r.seed, r.heard, r.errors] for r in readings if r.errors > 0],
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes a JSON file."""
    parser = argparse.ArgumentParser(prog="python -m voxserve.bench.snapshot_wer")
    parser.add_argument("--snapshot", type=Path, required=True)
    parser.add_argument("--streamed", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(wer.SEEDS))
    parser.add_argument("--longest-piece", type=int, default=300)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args(arguments)
    found = measure(options.snapshot, options.streamed, options.seeds, options.longest_piece)
    options.into.write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
