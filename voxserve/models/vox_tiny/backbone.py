"""The LM of vox-tiny: text encoder, talker, and depth transformer over the codebooks.

Rows are computed with products whose results do not depend on the batch (rows.py). Attention runs
row by row on exactly the row's own context, for the same reason and because on a CPU a padded
batch only reads more memory. Prompts run one after another: a prompt alone fills a CPU core.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from voxserve.models.vox_tiny.checkpoint import Tensors
from voxserve.models.vox_tiny.config import LAYER_NORM_EPS, BackboneShape, VoxTinyConfig
from voxserve.models.vox_tiny.transformer import Layer, folded, unit_rows


class TextConvolution:
    """One non-causal ConvNeXt block over the text of a prompt."""

    def __init__(self, tensors: Tensors, prefix: str) -> None:
        self.taps = tensors[f"{prefix}.dw.weight"][:, 0].t().contiguous()
        self.taps_bias = tensors[f"{prefix}.dw.bias"]
        self.norm = tensors[f"{prefix}.n.weight"], tensors[f"{prefix}.n.bias"]
        gain = tensors[f"{prefix}.g"]
        self.up = tensors[f"{prefix}.a.weight"].t().contiguous()
        self.up_bias = tensors[f"{prefix}.a.bias"]
        self.down = (tensors[f"{prefix}.b.weight"] * gain[:, None]).t().contiguous()
        self.down_bias = tensors[f"{prefix}.b.bias"] * gain

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] of one prompt's text."""
        reach = len(self.taps) // 2
        padded = F.pad(x, (0, 0, reach, reach))
        mixed = self.taps_bias.expand_as(x)
        for offset, tap in enumerate(self.taps):
            mixed = torch.addcmul(mixed, padded[offset : offset + len(x)], tap)
        mixed = F.layer_norm(mixed, mixed.shape[-1:], *self.norm, LAYER_NORM_EPS)
        hidden = F.gelu(torch.addmm(self.up_bias, mixed, self.up))
        return x + torch.addmm(self.down_bias, hidden, self.down)


class Talker:
    """Prompt embedding and the causal transformer that predicts the first codebook."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors, context_tokens: int) -> None:
        self.shape: BackboneShape = config.talker
        self.text_table = tensors["lm.te.weight"]
        self.text_blocks = [
            TextConvolution(tensors, f"lm.tc.{i}") for i in range(config.text_blocks)
        ]
        self.audio_table = torch.cat(
            [tensors[f"lm.ae.{i}.weight"] for i in range(config.num_codebooks)]
        )
        self.code_offsets = torch.arange(config.num_codebooks) * config.codebook_size
        layers = range(self.shape.layers)
        self.layers = [Layer(tensors, f"lm.ls.{i}", self.shape) for i in layers]
        self.norm_weight = tensors["lm.n.w"] * self.shape.hidden**0.5
        self.head = tensors["lm.h0.weight"].t().contiguous()
        # [context, layers, 2, heads, head_dim]: one gather serves all layers of a step.
        self.rotary = torch.stack(
            [layer.rotary_table(context_tokens) for layer in self.layers], 1
        ).contiguous()

    def embed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] input of one prompt; text rows form one run and pass the encoder."""
        is_text = mask[:, 0]
        x = torch.zeros(len(ids), self.shape.hidden)
        text = self.text_table[ids[is_text, 0].long()]
        for block in self.text_blocks:
            text = block(text)
        x[is_text] = text
        is_audio = mask[:, 1:]
        if bool(is_audio.any()):
            codes = self.audio_table[ids[:, 1:].long() + self.code_offsets]
            x += (codes * is_audio[..., None]).sum(1)
        return x

    def prompt(self, x: torch.Tensor, kv: list[torch.Tensor]) -> torch.Tensor:
        """Runs one prompt from an empty context.

        Args:
            x: [tokens, hidden].
            kv: Per layer [context, 2 * kv_heads, head_dim] of the slot; the first rows are set.

        Returns:
            [1, hidden] of the last token, before the final norm.
        """
        tokens, shape = len(x), self.shape
        rotary = self.rotary[:tokens]
        for index, layer in enumerate(self.layers):
            queries, rows = layer.project(x, rotary[:, index])
            kv[index][:tokens] = rows
            keys, values = rows.transpose(0, 1)[None].split(shape.kv_heads, 1)
            mixed = F.scaled_dot_product_attention(
                queries.transpose(0, 1)[None], keys, values, is_causal=True, enable_gqa=True
            )
            x = layer.finish(x, mixed[0].transpose(0, 1).reshape(tokens, shape.hidden))
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
        return unit_rows(x) * self.norm_weight


class DepthTransformer:
    """Predicts codebooks 1.. of a frame, one after another, from the talker's output."""

    def __init__(self, config: VoxTinyConfig, tensors: Tensors) -> None:
        self.shape = config.depth
        self.layers = [Layer(tensors, f"lm.dl.{i}", self.shape) for i in range(self.shape.layers)]
        self.rotary = [layer.rotary_table(config.num_codebooks) for layer in self.layers]
        self.entry = tensors["lm.dp.weight"].t().contiguous()
        projection = tensors["lm.dpe.weight"].t()
        # A code's embedding and its projection to the depth width, as one table.
        self.code_inputs = [
            torch.mm(tensors[f"lm.ae.{i}.weight"], projection)
            for i in range(config.num_codebooks - 1)
        ]
        self.heads = [folded(head, tensors["lm.dno.w"]) for head in tensors["lm.hd"]]

    def begin(
        self, hidden: torch.Tensor, codes: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """First two positions: the talker's output and codebook 0.

        Args:
            hidden: [rows, talker hidden], normed.
            codes: [rows] int64, codebook 0.

        Returns:
            [rows, codes] logits of codebook 1, and the KV of each layer
            [rows, codebooks, 2 * heads, head_dim] with two positions set.
        """
        rows, shape = len(codes), self.shape
        x = torch.stack([torch.mm(hidden, self.entry), self.code_inputs[0][codes]])
        x = x.view(2 * rows, shape.hidden)
        caches = []
        for layer, table in zip(self.layers, self.rotary, strict=True):
            rotary = table[:2].repeat_interleave(rows, 0)
            queries, fresh = layer.project(x, rotary)
            cache = torch.empty(rows, len(table), 2 * shape.heads, shape.head_dim)
            cache[:, :2] = fresh.view(2, rows, *fresh.shape[1:]).transpose(0, 1)
            caches.append(cache)
            by_row = queries.view(2, rows, shape.heads, shape.head_dim).permute(1, 2, 0, 3)
            keys, values = cache[:, :2].transpose(1, 2).split(shape.heads, 1)
            mixed = F.scaled_dot_product_attention(by_row, keys, values, is_causal=True)
            x = layer.finish(x, mixed.permute(2, 0, 1, 3).reshape(2 * rows, shape.hidden))
        return torch.mm(unit_rows(x[rows:]), self.heads[0]), caches

    def step(self, codes: torch.Tensor, codebook: int, caches: list[torch.Tensor]) -> torch.Tensor:
        """Logits [rows, codes] of `codebook` given the codes [rows] of the one before."""
        x = self.code_inputs[codebook - 1][codes]
        shape = self.shape
        for layer, table, cache in zip(self.layers, self.rotary, caches, strict=True):
            queries, fresh = layer.project(x, table[codebook : codebook + 1])
            cache[:, codebook] = fresh
            seen = cache[:, : codebook + 1].transpose(1, 2)
            keys, values = seen.split(shape.heads, 1)
            mixed = F.scaled_dot_product_attention(queries[:, :, None], keys, values)
            x = layer.finish(x, mixed.reshape(len(codes), shape.hidden))
        return torch.mm(unit_rows(x), self.heads[codebook - 1])

    def matrices(self) -> list[torch.Tensor]:
        """Every [in, out] matrix a decode step multiplies with."""
        return [
            self.entry,
            self.heads[0],
            *(m for layer in self.layers for m in layer.matrices()),
        ]
