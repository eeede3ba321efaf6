"""The LM of vox-tiny: text encoder, talker, and depth transformer over the codebooks.

Rows are computed with products whose results do not depend on the batch (rows.py). Attention runs
row by row on exactly the row's own context, for the same reason and because on a CPU a padded
batch only reads more memory. Prompts run one after another: a prompt alone fills a CPU core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch
import torch.nn.functional as F

from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import LAYER_NORM_EPS, BackboneShape, VoxTinyConfig
from voxserve.models.vox_tiny.transformer import Layer, folded, unit_rows

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
        self.audio_table = torch.mm(codes, tensors["lm.ap.weight"].t())
        self.code_offsets = torch.arange(config.num_codebooks) * config.codebook_size
        # What opens the speech, behind the text.
        self.opening = self.text_table[config.audio_bos_id][None]
        layers = range(self.shape.layers)
        self.layers = [Layer(tensors, f"lm.ls.{i}", self.shape) for i in layers]
        self.norm_weight = tensors["lm.n.w"] * self.shape.hidden**0.5
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

    def extend(self, x: torch.Tensor, kv: torch.Tensor, past: int) -> torch.Tensor:
        """Runs positions of one sequence.

        Args:
            x: [positions, hidden].
            kv: [layers, context, 2, kv_heads, head_dim] of the slot; rows from `past` are set.
            past: Positions before.

        Returns:
            [1, hidden] of the last position, before the final norm.
        """
        positions, shape = len(x), self.shape
        end = past + positions
        rotary = self.rotary[past:end].unbind(1)
        mask = torch.ones(positions, end, dtype=torch.bool).tril(past) if past else None
        seen = kv[:, None, :end].permute(0, 3, 1, 4, 2, 5)
        for index, layer in enumerate(self.layers):
            queries, rows = layer.project(x, rotary[index])
            kv[index, past:end] = rows
            keys, values = seen[index]
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
        self, x: torch.Tensor, kv: torch.Tensor, slots: list[int], positions: list[int]
    ) -> torch.Tensor:
        """One decode step.

        Args:
            x: [rows, hidden].
            kv: [layers, slots, context, 2, kv_heads, head_dim]; row `position` is set.
            slots: Slot of each row; repeats at the end only fill the batch.
            positions: Context length of each row before the step.

        Returns:
            [rows, hidden] before the final norm.
        """
        shape, rows = self.shape, len(slots)
        rotary = self.rotary.index_select(0, torch.tensor(positions)).unbind(1)
        own = dict(zip(slots, positions, strict=True))
        places = torch.tensor([s * kv.shape[2] + own[s] for s in slots])
        fresh = kv.flatten(1, 2).unbind(0)
        # Per row and layer [2, 1, kv_heads, positions, head_dim].
        seen = [
            kv[:, slot : slot + 1, : position + 1].permute(0, 3, 1, 4, 2, 5).unbind(0)
            for slot, position in own.items()
        ]
        for index, layer in enumerate(self.layers):
            queries, pairs = layer.project(x, rotary[index])
            fresh[index].index_copy_(0, places, pairs)
            # The query heads that share a kv head stand as positions of it.
            grouped = queries.view(rows, 1, shape.kv_heads, -1, shape.head_dim).unbind(0)
            mixed: list[torch.Tensor] = []
            for asked, row in zip(grouped, seen, strict=False):
                keys, values = row[index].unbind(0)
                mixed.append(F.scaled_dot_product_attention(asked, keys, values))
            mixed.extend(mixed[-1:] * (rows - len(seen)))
            x = layer.finish(x, torch.cat(mixed).view(rows, shape.hidden))
        return x

    def frame_input(self, codes: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] input of the step after a frame: the sum of its codes' embeddings."""
        return F.embedding_bag(codes + self.code_offsets, self.audio_table, mode="sum")

    def matrices(self) -> list[torch.Tensor]:
        """Every [in, out] matrix a decode step multiplies with."""
        return [self.head, *(m for layer in self.layers for m in layer.matrices())]

    def normed(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] after the final norm: what both heads read."""
        return unit_rows(x) * self.norm_weight


class DepthTransformer:
    """Predicts codebooks 1.. of a frame from the talker's output, pass by pass."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors) -> None:
        self.shape, self.passes = config.depth, config.depth_passes
        self.layers = [Layer(tensors, f"lm.dl.{i}", self.shape) for i in range(self.shape.layers)]
        self.rotary = [layer.rotary_table(len(self.passes)) for layer in self.layers]
        self.entry = tensors["lm.dp.weight"].t().contiguous()
        self.code_tables = [tensors[f"lm.ae.{i}.weight"] for i in range(config.num_codebooks)]
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
        cache = [
            torch.empty(2, len(first), self.shape.heads, len(self.passes), self.shape.head_dim)
            for _ in self.layers
        ]
        x = torch.addmm(self.code_tables[0][first], hidden, self.entry)
        codes = [first[:, None]]
        for number, books in enumerate(self.passes):
            if number:
                heard = zip(self.passes[number - 1], codes[-1].unbind(1), strict=True)
                x = reduce(torch.add, (self.code_tables[book][code] for book, code in heard))
            x = self._step(x, number, cache)
            logits = torch.mm(unit_rows(x), self.heads[number])
            codes.append(choose(books, logits.view(len(x), len(books), -1)))
        return torch.cat(codes, 1)

    def _step(self, x: torch.Tensor, position: int, caches: list[torch.Tensor]) -> torch.Tensor:
        """[rows, hidden] of one more position."""
        for layer, table, cache in zip(self.layers, self.rotary, caches, strict=True):
            queries, pairs = layer.project(x, table[position : position + 1])
            cache[:, :, :, position] = pairs.transpose(0, 1)
            keys, values = cache[:, :, :, : position + 1]
            mixed = F.scaled_dot_product_attention(queries[:, :, None], keys, values)
            x = layer.finish(x, mixed.view(x.shape))
        return x

    def matrices(self) -> list[torch.Tensor]:
        """Every [in, out] matrix a decode step multiplies with."""
        return [self.entry, *self.heads, *(m for layer in self.layers for m in layer.matrices())]
