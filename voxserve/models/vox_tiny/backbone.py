"""The LM of vox-tiny: text encoder, talker, and depth transformer over the codebooks.

Rows are computed with products whose results do not depend on the batch (rows.py). Attention runs
row by row on exactly the row's own context, for the same reason and because on a CPU a padded
batch only reads more memory. Prompts run one after another: a prompt alone fills a CPU core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import LAYER_NORM_EPS, BackboneShape, VoxTinyConfig
from voxserve.models.vox_tiny.transformer import Layer, folded, least_length, unit_rows

Choose = Callable[[Sequence[int], torch.Tensor], torch.Tensor]


class TextBlock:
    """One ConvNeXt block over text; a token sees what arrived with it, and a little before."""

    def __init__(self, tensors: Tensors, prefix: str) -> None:
        self.taps = tensors[f"{prefix}.dw.weight"][:, 0].t().contiguous()
        self.taps_bias = tensors[f"{prefix}.dw.bias"]
        self.norm = tensors[f"{prefix}.n.weight"], tensors[f"{prefix}.n.bias"]
        gain = tensors[f"{prefix}.g"]
        self.up = tensors[f"{prefix}.a.weight"].t().contiguous()
        self.up_bias = tensors[f"{prefix}.a.bias"]
        self.down = (tensors[f"{prefix}.b.weight"] * gain[:, None]).t().contiguous()
        self.down_bias = tensors[f"{prefix}.b.bias"] * gain

    def __call__(self, x: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Encodes tokens that arrived together.

        Args:
            x: [tokens, hidden].
            history: [reach, hidden] inputs before them; moved on.

        Returns:
            [tokens, hidden].
        """
        tokens, reach = len(x), len(history)
        joined = F.pad(torch.cat([history, x]), (0, 0, 0, reach))
        history.copy_(joined[tokens : tokens + reach])
        mixed = self.taps_bias.expand_as(x)
        for offset, tap in enumerate(self.taps):
            mixed = torch.addcmul(mixed, joined[offset : offset + tokens], tap)
        mixed = F.layer_norm(mixed, mixed.shape[-1:], *self.norm, LAYER_NORM_EPS)
        hidden = F.gelu(torch.addmm(self.up_bias, mixed, self.up))
        return x + torch.addmm(self.down_bias, hidden, self.down)


class Talker:
    """Text and audio embedding, and the causal transformer that predicts the first codebook."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors, context_tokens: int) -> None:
        self.shape: BackboneShape = config.talker
        self.text_table = tensors["lm.te.weight"]
        self.text_blocks = [TextBlock(tensors, f"lm.tc.{i}") for i in range(config.text_blocks)]
        # A code's embedding behind its projection to the talker's width, as one table.
        codes = torch.cat([tensors[f"lm.ae.{i}.weight"] for i in range(config.num_codebooks)])
        projection = tensors.get("lm.ap.weight")
        self.audio_table = codes if projection is None else torch.mm(codes, projection.t())
        self.code_offsets = torch.arange(config.num_codebooks) * config.codebook_size
        # What opens the speech in architecture 2; in 1 it is encoded with the text.
        self.opening = self.text_table[config.audio_bos_id][None]
        layers = range(self.shape.layers)
        self.layers = [Layer(tensors, f"lm.ls.{i}", self.shape) for i in layers]
        self.norm_weight = tensors["lm.n.w"] * self.shape.hidden**0.5
        self._least = least_length(self.shape.hidden)
        self.head = tensors["lm.h0.weight"].t().contiguous()
        # [context, layers, 2, heads, head_dim]: one gather serves all layers of a step.
        self.rotary = torch.stack(
            [layer.rotary_table(context_tokens) for layer in self.layers], 1
        ).contiguous()

    def encode(self, ids: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Encodes text that arrived together.

        Args:
            ids: [tokens].
            history: [blocks, reach, hidden] of the text before it; moved on.

        Returns:
            [tokens, hidden].
        """
        x = self.text_table[ids.long()]
        for block, inputs in zip(self.text_blocks, history, strict=True):
            x = block(x, inputs)
        return x

    def extend(self, x: torch.Tensor, kv: list[torch.Tensor], past: int) -> torch.Tensor:
        """Runs positions of one sequence.

        Args:
            x: [positions, hidden].
            kv: Per layer [context, 2 * kv_heads, head_dim] of the slot; rows from `past` are set.
            past: Positions before.

        Returns:
            [1, hidden] of the last position, before the final norm.
        """
        positions, shape = len(x), self.shape
        end = past + positions
        rotary = self.rotary[past:end]
        mask = torch.ones(positions, end, dtype=torch.bool).tril(past) if past else None
        for index, layer in enumerate(self.layers):
            queries, rows = layer.project(x, rotary[:, index])
            kv[index][past:end] = rows
            keys, values = kv[index][:end].transpose(0, 1)[None].split(shape.kv_heads, 1)
            mixed = F.scaled_dot_product_attention(
                queries.transpose(0, 1)[None],
                keys,
                values,
                attn_mask=mask,
                is_causal=mask is None,
                enable_gqa=True,
            )
            x = layer.finish(x, mixed[0].transpose(0, 1).reshape(positions, shape.hidden))
        return x[-1:]

    def step(
        self, x: torch.Tensor, kv: list[torch.Tensor], slots: list[int], positions: list[int]
    ) -> torch.Tensor:
        """One decode step.

        Args:
            x: [rows, hidden].
            kv: Per layer [slots, context, 2 * kv_heads, head_dim]; row `position` is set.
            slots: Slot of each row.
            positions: Context length of each row before the step.

        Returns:
            [rows, hidden] before the final norm.
        """
        at = torch.tensor(positions)
        rotary = self.rotary.index_select(0, at)
        context = kv[0].shape[1]
        distinct = len(set(slots))  # the rest repeats the last row
        places = torch.tensor([s * context + p for s, p in zip(slots, positions, strict=True)])
        for index, layer in enumerate(self.layers):
            queries, rows = layer.project(x, rotary[:, index])
            cache = kv[index]
            cache.flatten(0, 1).index_copy_(0, places, rows)
            mixed = [
                self._attend(queries[row], cache[slots[row], : positions[row] + 1])
                for row in range(distinct)
            ]
            mixed.extend(mixed[-1:] * (len(slots) - distinct))
            x = layer.finish(x, torch.cat(mixed))
        return x

    def _attend(self, queries: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """One row: the query heads that share a kv head stand as positions of it."""
        shape = self.shape
        grouped = queries.view(1, shape.kv_heads, -1, shape.head_dim)
        keys, values = kv.transpose(0, 1)[None].split(shape.kv_heads, 1)
        return F.scaled_dot_product_attention(grouped, keys, values).view(1, shape.hidden)

    def frame_input(self, codes: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] input of the step after a frame: the sum of its codes' embeddings."""
        return F.embedding_bag(codes + self.code_offsets, self.audio_table, mode="sum")

    def matrices(self) -> list[torch.Tensor]:
        """Every [in, out] matrix a decode step multiplies with."""
        return [self.head, *(m for layer in self.layers for m in layer.matrices())]

    def normed(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] after the final norm: what both heads read."""
        return unit_rows(x, self._least) * self.norm_weight


class DepthTransformer:
    """Predicts codebooks 1.. of a frame from the talker's output, pass by pass."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors) -> None:
        self.shape, self.passes = config.depth, config.depth_passes
        # Architecture 1 hears the talker in a position of its own, before codebook 0.
        self._is_talker_apart = config.architecture == 1
        self.layers = [Layer(tensors, f"lm.dl.{i}", self.shape) for i in range(self.shape.layers)]
        self._positions = len(self.passes) + self._is_talker_apart
        self.rotary = [layer.rotary_table(self._positions) for layer in self.layers]
        self._least = least_length(self.shape.hidden)
        self.entry = tensors["lm.dp.weight"].t().contiguous()
        codes = torch.cat([tensors[f"lm.ae.{i}.weight"] for i in range(config.num_codebooks)])
        projection = tensors.get("lm.dpe.weight")
        self.code_table = codes if projection is None else torch.mm(codes, projection.t())
        self.codebook_size = config.codebook_size
        # The heads of a pass side by side: one product gives all its logits.
        heads = [folded(head, tensors["lm.dno.w"]) for head in tensors["lm.hd"]]
        self.heads = [torch.cat([heads[book - 1] for book in books], 1) for books in self.passes]

    def predict(self, hidden: torch.Tensor, first: torch.Tensor, choose: Choose) -> torch.Tensor:
        """The codes of one frame per row.

        Args:
            hidden: [rows, talker hidden], normed.
            first: [rows] int64, codebook 0.
            choose: Codes [rows, codebooks] of some codebooks and their logits [rows, codebooks,
                codes].

        Returns:
            [rows, codebooks] int64.
        """
        rows, shape = len(first), self.shape
        cache = [
            torch.empty(rows, self._positions, 2 * shape.heads, shape.head_dim) for _ in self.layers
        ]
        talker = torch.mm(hidden, self.entry)
        opening = F.embedding(first, self.code_table)
        position = 0
        if self._is_talker_apart:
            self._step(talker, 0, cache)
            position = 1
        else:
            opening += talker
        codes = [first[:, None]]
        for number, books in enumerate(self.passes):
            x = self._step(
                opening if number == 0 else self._heard(codes[-1], books), position, cache
            )
            logits = torch.mm(unit_rows(x, self._least), self.heads[number])
            codes.append(choose(books, logits.view(rows, len(books), self.codebook_size)))
            position += 1
        return torch.cat(codes, 1)

    def _heard(self, codes: torch.Tensor, next_books: Sequence[int]) -> torch.Tensor:
        """[rows, hidden] sum of the codes [rows, codebooks] of the pass before `next_books`."""
        first = next_books[0] - codes.shape[1]
        offsets = torch.arange(first, next_books[0]) * self.codebook_size
        return F.embedding_bag(codes + offsets, self.code_table, mode="sum")

    def _step(self, x: torch.Tensor, position: int, caches: list[torch.Tensor]) -> torch.Tensor:
        """[rows, hidden] of one more position."""
        shape = self.shape
        for layer, table, cache in zip(self.layers, self.rotary, caches, strict=True):
            queries, fresh = layer.project(x, table[position : position + 1])
            cache[:, position] = fresh
            seen = cache[:, : position + 1].transpose(1, 2)
            keys, values = seen.split(shape.heads, 1)
            mixed = F.scaled_dot_product_attention(queries[:, :, None], keys, values)
            x = layer.finish(x, mixed.reshape(len(x), shape.hidden))
        return x

    def matrices(self) -> list[torch.Tensor]:
        """Every [in, out] matrix a decode step multiplies with."""
        return [self.entry, *self.heads, *(m for layer in self.layers for m in layer.matrices())]
