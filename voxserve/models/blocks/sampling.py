"""Per-slot sampling settings and what the draws remember, as device tensors."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch

from voxserve.kernels.sampling import (
    FirstCodebookRules,
    SamplingParams,
    sample,
    seen_bitmap,
)
from voxserve.models.request import Sampling

# Seed; top_k of both kinds of codebook; penalty; temperature and top_p of both.
_SETTINGS = struct.Struct("=Q2i5f")
SETTING_COLUMNS = _SETTINGS.size // 4
MOST = 2**31 - 1  # of a whole number: what a user may ask for has no bound
# What a state has before any request: greedy, nothing penalised.
NO_SETTINGS = _SETTINGS.pack(0, 0, 0, 1.0, 0.0, 1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """A model's own settings, used where a request says nothing.

    Attributes:
        temperature, top_k, top_p, repetition_penalty: First codebook.
        depth_temperature, depth_top_k, depth_top_p: The others.
    """

    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    depth_temperature: float = 0.9
    depth_top_k: int = 50
    depth_top_p: float = 1.0


def setting_row(seed: int, wanted: Sampling, defaults: SamplingDefaults) -> bytes:
    """What a request's draws depend on, as `SETTING_COLUMNS` numbers of four bytes."""

    def pick(name: str) -> float:
        value = getattr(wanted, name)
        return getattr(defaults, name) if value is None else value

    top_k, depth_top_k = (min(int(pick(name)), MOST) for name in ("top_k", "depth_top_k"))
    return _SETTINGS.pack(
        seed & 0xFFFF_FFFF_FFFF_FFFF,
        *(top_k, depth_top_k, pick("repetition_penalty")),
        *(pick("temperature"), pick("top_p")),
        *(pick("depth_temperature"), pick("depth_top_p")),
    )


class SamplingState:
    """Settings of all slots.

    Args:
        num_slots: With the scratch slot.
        vocab: Ids of the first codebook, the impossible ones included.
        first_suppressed: Ids from here on are impossible, except `end_id`.
        end_id: Ends a stream.
        device: Where the tensors live.

    Attributes:
        seeds: [slots] int64.
        first, depth: Settings of the first codebook and of the others.
        rules: Masks and penalty of the first codebook.
    """

    def __init__(
        self,
        num_slots: int,
        vocab: int,
        first_suppressed: int,
        end_id: int,
        device: torch.device,
    ) -> None:
        def params() -> SamplingParams:
            return SamplingParams(
                temperature=torch.zeros(num_slots, device=device),
                top_k=torch.zeros(num_slots, dtype=torch.int32, device=device),
                top_p=torch.ones(num_slots, device=device),
            )

        self.seeds = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.first, self.depth = params(), params()
        self.rules = FirstCodebookRules(
            seen=seen_bitmap(num_slots, vocab, device),
            penalty=torch.ones(num_slots, device=device),
            min_frames=torch.zeros(num_slots, dtype=torch.int32, device=device),
            first_suppressed=first_suppressed,
            end_id=end_id,
        )

    def open(self, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Sets slots up for new requests.

        Args:
            slots: [rows] int64.
            rows: [rows, SETTING_COLUMNS] int32, from `setting_row`.
        """
        self.seeds.index_copy_(0, slots, rows[:, :2].contiguous().view(torch.int64).flatten())
        self.rules.seen.index_fill_(0, slots, 0)
        self.first.top_k.index_copy_(0, slots, rows[:, 2])
        self.depth.top_k.index_copy_(0, slots, rows[:, 3])
        numbers = rows[:, 4:SETTING_COLUMNS].contiguous().view(torch.float32)
        tables = (
            self.rules.penalty,
            *(self.first.temperature, self.first.top_p),
            *(self.depth.temperature, self.depth.top_p),
        )
        for column, table in enumerate(tables):
            table.index_copy_(0, slots, numbers[:, column])

    def draw_first(
        self,
        logits: torch.Tensor,
        slots: torch.Tensor,
        frames: torch.Tensor,
        out: torch.Tensor,
        next_table: torch.Tensor | None = None,
        next_rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Draws the first codebook's ids [rows] int32 into `out`; `frames` is per slot.

        The ids' rows of `next_table`, if given, go to `next_rows`.
        """
        return sample(
            *(logits, slots, self.first, self.seeds, frames, 0, out),
            rules=self.rules,
            next_table=next_table,
            next_rows=next_rows,
        )

    def draw_depth(
        self,
        logits: torch.Tensor,
        slots: torch.Tensor,
        frames: torch.Tensor,
        codebook: int,
        out: torch.Tensor,
        next_table: torch.Tensor | None,
        next_rows: torch.Tensor | None,
        unscaled: torch.Tensor | None = None,
    ) -> None:
        """Draws another codebook's ids and hands on their rows of the next table."""
        sample(
            *(logits, slots, self.depth, self.seeds, frames, codebook, out),
            next_table=next_table,
            next_rows=next_rows,
            unscaled=unscaled,
        )

    def forget_end(self, slots: torch.Tensor) -> None:
        """Clears the end id from what was seen, so that the next piece may end as freely."""
        word, bit = divmod(self.rules.end_id, 32)
        mask = ~(1 << bit) if bit < 31 else 0x7FFFFFFF
        index = slots.long()
        self.rules.seen[index, word] = self.rules.seen[index, word] & mask
