"""Training speech on the device, and batches of it in random order.

Everything lies in flat tensors (a hundred hours take under 200 MB); a batch is gathered there, so
that the processor only draws utterance numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from voxserve.core.errors import InvalidInput
from voxserve.models.vox_tiny.train import arrivals, shards
from voxserve.models.vox_tiny.train.encoder import (
    BLOCKS_PER_FRAME,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
)
from voxserve.models.vox_tiny.train.network import (
    CHARACTERS,
    FIRST_CHARACTER,
    PADDING,
    TEXT_BEGIN,
    TEXT_END,
)
from voxserve.models.vox_tiny.train.sequences import Batch

FRAMES_PER_HOUR = 3600 * SAMPLE_RATE_HZ // FRAME_SAMPLES
# The teacher counts 0.3 s of silence to the last letter (60 texts: 0.27 to 0.36 s).
_SILENT_BLOCKS, _TAIL_BLOCKS = 30, 4
_NEVER = 30_000  # blocks; beyond any utterance
_SORTED_TOGETHER = 16_384
_HELD_OUT_OF = 64
_IDS = {character: FIRST_CHARACTER + place for place, character in enumerate(CHARACTERS)}


class SpeechData:
    """Utterances as flat tensors, some of them held out for validation by their text.

    Attributes:
        device: Where batches are made.
        lengths: [utterances] int64 on the processor, positions an utterance takes.
        frames: [utterances] int64 on the processor.
        is_held_out: [utterances] bool on the processor.
    """

    def __init__(self, utterances: Sequence[shards.Utterance], device: str) -> None:
        """Moves utterances to the device.

        Args:
            utterances: Of any shards, at least one.
            device: Where batches are made.
        """
        self.device = device
        self._text, self._ends, self._words, self._spoken = (
            torch.zeros(0, dtype=torch.int16, device=device) for _ in range(4)
        )
        self._expected = torch.zeros(0, device=device)
        self._codes = torch.zeros(0, utterances[0].codes.shape[1], dtype=torch.int16, device=device)
        self._num_tokens, self._num_words, self.frames = (
            torch.zeros(0, dtype=torch.int64) for _ in range(3)
        )
        self.is_held_out = torch.zeros(0, dtype=torch.bool)
        self.extend(utterances)

    def extend(self, utterances: Sequence[shards.Utterance]) -> None:
        """Adds utterances behind those there are."""
        utterances = [_trimmed(utterance) for utterance in utterances]
        tokens = [_tokens(utterance) for utterance in utterances]
        texts, ends, words, spoken, expected = (
            np.concatenate([t[column] for t in tokens]) for column in range(5)
        )
        codes = np.concatenate([u.codes for u in utterances])
        self._text, self._ends, self._words, self._spoken, self._expected, self._codes = (
            torch.cat([old, torch.from_numpy(new).to(self.device, old.dtype)])
            for old, new in (
                (self._text, texts),
                (self._ends, ends),
                (self._words, words),
                (self._spoken, spoken),
                (self._expected, expected),
                (self._codes, codes.astype(np.int16)),
            )
        )
        self._num_tokens, self._num_words, self.frames, self.is_held_out = (
            torch.cat([old, torch.tensor(new)])
            for old, new in (
                (self._num_tokens, [len(t[0]) for t in tokens]),
                (self._num_words, [int(t[2][-1]) + 1 for t in tokens]),
                (self.frames, [len(u.codes) for u in utterances]),
                (self.is_held_out, [_is_held_out(u.text) for u in utterances]),
            )
        )
        self.lengths = self._num_tokens + self.frames + 1
        self._token_counts = self._num_tokens.to(self.device)
        self._frame_counts = self.frames.to(self.device)
        self._token_starts = self._token_counts.cumsum(0) - self._token_counts
        self._frame_starts = self._frame_counts.cumsum(0) - self._frame_counts

    @property
    def hours(self) -> float:
        """Of speech."""
        return float(self.frames.sum()) / FRAMES_PER_HOUR

    def batch(
        self, index: torch.Tensor, streamed: torch.Tensor, generator: torch.Generator
    ) -> Batch:
        """Gathers utterances.

        Args:
            index: [rows] int64 on the processor.
            streamed: [rows] bool on the processor, whose text comes word by word.
            generator: Of the arrivals, on the processor.
        """
        lead, pace = arrivals.random_leads(len(index), generator)
        delays = arrivals.random_end_delays(len(index), generator)
        most_tokens, most_words = (
            int(counts[index].max()) for counts in (self._num_tokens, self._num_words)
        )
        most_frames, positions = int(self.frames[index].max()), int(self.lengths[index].max())
        real = (torch.arange(most_frames) < self.frames[index, None]).flatten().nonzero()[:, 0]
        index, streamed, lead, pace, delays, real = (
            item.to(self.device, non_blocking=True)
            for item in (index, streamed, lead, pace, delays, real)
        )
        counts, frames = self._token_counts[index], self._frame_counts[index]
        place = torch.arange(most_tokens, device=self.device)
        is_token = place < counts[:, None]
        at = (self._token_starts[index][:, None] + place).clamp(max=len(self._text) - 1)
        words = torch.where(is_token, self._words[at].long(), 0)
        spoken, expected = self._spoken[at].long(), self._expected[at]
        begins = _by_word(spoken, words, is_token, most_words)
        starts = _by_word(expected, words, is_token, most_words)
        paced = arrivals.paced_steps(starts, lead, pace)
        steps = arrivals.limited_steps(paced, begins).gather(1, words)
        is_end = place == counts[:, None] - 1
        steps = torch.where(is_end, torch.minimum(steps + delays[:, None], spoken), steps)
        steps = torch.where(streamed[:, None], steps, 0)
        text = torch.where(is_token, self._text[at].long(), PADDING)
        segments = torch.where(streamed[:, None], words + is_end, 0)
        frame_place = torch.arange(most_frames, device=self.device)
        frame_at = (self._frame_starts[index][:, None] + frame_place).clamp(
            max=len(self._codes) - 1
        )
        codes = self._codes[frame_at].long() * (frame_place < frames[:, None])[..., None]
        ends = torch.where(is_token, self._ends[at].long(), -1)
        sounding = _sounding(ends, most_frames + 1, frames)
        return Batch(text, segments, steps, counts, codes, frames, sounding, real, positions)


def _is_held_out(text: str) -> bool:
    """One text in 64, the same ones in every run."""
    return zlib.crc32(text.encode()) % _HELD_OUT_OF == 0


def _last_letter_end(utterance: shards.Utterance) -> int:
    """Blocks."""
    return int(utterance.ends[len(utterance.text.rstrip(",.!?;:")) - 1])


def _trimmed(utterance: shards.Utterance) -> shards.Utterance:
    """With the same short silence at every end: a model learns well where to stop then."""
    frames = -(-(_last_letter_end(utterance) + _TAIL_BLOCKS) // BLOCKS_PER_FRAME)
    return shards.Utterance(utterance.text, utterance.codes[:frames], utterance.ends)


def _tokens(utterance: shards.Utterance) -> tuple[np.ndarray, ...]:
    """Per token: id, end in blocks, word, frame in which the word begins, its expected frame."""
    text, ends = utterance.text, utterance.ends.astype(np.int64)
    spaces = np.array([character == " " for character in text])
    word = np.cumsum(spaces) - spaces  # a space belongs to the word before it
    starts = np.append(0, ends[spaces]) // BLOCKS_PER_FRAME
    expected = np.array(arrivals.expected_starts(text))
    # The silence at the end belongs to the end of the text, which is known when it begins.
    silence = max(0, _last_letter_end(utterance) - _SILENT_BLOCKS)
    ids = np.array([TEXT_BEGIN, *(_IDS[character] for character in text), TEXT_END])
    words = np.concatenate([[0], word, word[-1:]])
    all_ends = np.concatenate([[-1], np.minimum(ends, silence), [_NEVER]])
    spoken = np.append(starts[words[:-1]], silence // BLOCKS_PER_FRAME)
    return ids, all_ends, words, spoken, expected[words]


def _by_word(
    values: torch.Tensor, words: torch.Tensor, is_token: torch.Tensor, most_words: int
) -> torch.Tensor:
    """[rows, words] least value of each word's tokens; what a row lacks comes after all it has."""
    never = torch.full_like(values, _NEVER)
    out = never.new_full((len(words), most_words), _NEVER)
    return out.scatter_reduce_(1, words, torch.where(is_token, values, never), "amin")


def _sounding(ends: torch.Tensor, steps: int, frames: torch.Tensor) -> torch.Tensor:
    """[rows, steps, tokens] bool: which tokens sound in the frame that a step makes."""
    starts = torch.nn.functional.pad(ends[:, :-1], (1, 0), value=-1)
    frame = torch.arange(steps, device=ends.device) * BLOCKS_PER_FRAME
    begun = starts[:, None] < frame[:, None] + BLOCKS_PER_FRAME
    lasting = ends[:, None] > frame[:, None]
    is_step = torch.arange(steps, device=ends.device) <= frames[:, None]
    return begun & lasting & is_step[..., None]


class ShardFolders:
    """Folders that shards may still be written to."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Remembers the folders; reads nothing yet."""
        self._folders = folders
        self._read: set[Path] = set()

    def new(self) -> list[shards.Utterance]:
        """Utterances of the shards that were not there before, in the order of their names."""
        paths = {path for folder in self._folders for path in folder.rglob("*.npz")} - self._read
        self._read |= paths
        return [utterance for path in sorted(paths) for utterance in shards.read(path)]

    def first(self) -> list[shards.Utterance]:
        """The same, where there must be some.

        Raises:
            InvalidInput: There are none.
        """
        found = self.new()
        if not found:
            raise InvalidInput(f"no shards (*.npz) in {', '.join(map(str, self._folders))}")
        return found


def epochs(
    lengths: torch.Tensor, chosen: torch.Tensor, positions: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Endless batches of utterance numbers, of similar length and about `positions` each.

    Args:
        lengths: [utterances] positions each takes.
        chosen: [any] utterances to draw from.
        positions: Padded size of a batch.
        generator: Of the order.
    """
    while True:
        order = chosen[torch.randperm(len(chosen), generator=generator)]
        for part in order.split(_SORTED_TOGETHER):
            part = part[lengths[part].argsort()]
            batches, start = [], 0
            while start < len(part):
                rows = _fitting(lengths[part[start:]], positions)
                batches.append(part[start : start + rows])
                start += rows
            for number in torch.randperm(len(batches), generator=generator).tolist():
                yield batches[number]


def _fitting(lengths: torch.Tensor, positions: int) -> int:
    """Rows of ascending lengths that fit, padded to the longest; at least one."""
    padded = lengths * torch.arange(1, len(lengths) + 1)
    return max(1, int((padded <= positions).sum()))
