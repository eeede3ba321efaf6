"""Comparisons of the ops of a backbone, its depth transformer and the sampler."""

from __future__ import annotations

import torch

from voxserve.kernels.backend import use_reference
from voxserve.kernels.decode_attention import decode_attention
from voxserve.kernels.depth_attention import depth_attention
from voxserve.kernels.fused_linear import (
    linear_residual,
    logits_linear,
    norm_gate_up,
    norm_linear,
)
from voxserve.kernels.kv_cache import PAGE_SIZE, qk_norm_rope_write
from voxserve.kernels.linear_kernel import LinearTile, launch_linear
from voxserve.kernels.prefill_attention import prefill_attention
from voxserve.kernels.rms_norm import rms_norm
from voxserve.kernels.rope import rope_table
from voxserve.kernels.sampling import FirstCodebookRules, SamplingParams, sample
from voxserve.kernels.silu_mul import silu_mul
from voxserve.runtime.parity_case import ParityCase, Tensors, around_one, normal, poison


def norm_cases(rows: int, width: int, out: int) -> list[ParityCase]:
    """Norms, gated activation and the fused products."""

    def build(gen: torch.Generator) -> Tensors:
        return {
            "x": normal(gen, rows, width),
            "norm": around_one(gen, width),
            "weight": normal(gen, 2 * out, width, scale=width**-0.5),
            "back": normal(gen, width, out, scale=out**-0.5),
            "hidden": normal(gen, rows, out),
            "residual": normal(gen, rows, width),
        }

    size = f"[{rows}x{width}x{out}]"
    return [
        ParityCase(f"rms_norm{size}", build, lambda t: [rms_norm(t["x"], t["norm"])]),
        ParityCase(f"silu_mul{size}", build, lambda t: [silu_mul(t["x"])]),
        ParityCase(f"silu_mul_unscaled{size}", build, lambda t: [silu_mul(t["x"], t["hidden"])]),
        ParityCase(
            f"norm_linear{size}", build, lambda t: [norm_linear(t["x"], t["norm"], t["weight"])]
        ),
        ParityCase(
            f"norm_linear_folded{size}", build, lambda t: [norm_linear(t["x"], None, t["weight"])]
        ),
        ParityCase(f"logits{size}", build, lambda t: [logits_linear(t["x"], t["weight"])]),
        ParityCase(
            f"norm_gate_up{size}", build, lambda t: [norm_gate_up(t["x"], None, t["weight"])]
        ),
        ParityCase(
            f"linear_residual{size}",
            build,
            lambda t: [linear_residual(t["hidden"], t["back"], t["residual"])],
        ),
    ]


def linear_tile_case(rows: int, width: int, out: int, tile: LinearTile, kind: str) -> ParityCase:
    """The product kernel with a given program shape; `kind` is `norm`, `gated` or `residual`."""

    def build(gen: torch.Generator) -> Tensors:
        outputs = 2 * out if kind == "gated" else out
        return {
            "x": normal(gen, rows, width),
            "weight": normal(gen, outputs, width, scale=width**-0.5),
            "residual": normal(gen, rows, out),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        if not use_reference(t["x"]):
            residual = t["residual"] if kind == "residual" else None
            options = {"norm": kind != "residual", "gated": kind == "gated"}
            return [launch_linear(t["x"], t["weight"], tile, residual=residual, **options)]
        if kind == "residual":
            return [linear_residual(t["x"], t["weight"], t["residual"])]
        return [(norm_gate_up if kind == "gated" else norm_linear)(t["x"], None, t["weight"])]

    shape = "x".join(str(value) for value in (tile.bm, tile.bn, tile.bk, tile.split))
    return ParityCase(f"linear_tile[{rows}x{width}x{out},{kind},{shape}]", build, call)


def _paged_inputs(
    gen: torch.Generator, lengths: list[int], q_heads: int, kv_heads: int, head_dim: int
) -> Tensors:
    slots = len(lengths) + 2
    max_pages = max(lengths) // PAGE_SIZE + 2
    pages = torch.randperm(slots * max_pages, generator=gen).view(slots, max_pages)
    order = torch.randperm(slots, generator=gen)[: len(lengths)]
    all_lengths = torch.zeros(slots, dtype=torch.int32)
    all_lengths[order] = torch.tensor(lengths, dtype=torch.int32)
    width = (q_heads + 2 * kv_heads) * head_dim
    return {
        "qkv": normal(gen, len(lengths), width),
        "x": normal(gen, len(lengths), 80, scale=1.7),
        "q_norm": around_one(gen, head_dim),
        "k_norm": around_one(gen, head_dim),
        "table": rope_table(max_pages * PAGE_SIZE, head_dim, 1e6),
        "kv": normal(gen, slots * max_pages, 2, kv_heads, PAGE_SIZE, head_dim),
        "page_table": pages.int(),
        "lengths": all_lengths,
        "slots": order.int(),
    }


def decode_attention_case(
    lengths: list[int], q_heads: int, kv_heads: int, head_dim: int, normed: bool = True
) -> ParityCase:
    """Paged decode attention over requests of the given lengths; the cache is compared too."""

    def call(t: Tensors) -> list[torch.Tensor]:
        out = decode_attention(
            t["qkv"],
            t["q_norm"] if normed else None,
            t["k_norm"] if normed else None,
            t["table"],
            t["kv"],
            t["page_table"],
            t["lengths"],
            t["slots"],
        )
        unscaled = decode_attention(
            t["qkv"],
            t["q_norm"] if normed else None,
            t["k_norm"] if normed else None,
            t["table"],
            t["kv"],
            t["page_table"],
            t["lengths"],
            t["slots"],
            unscaled=t["x"],
        )
        return [out, unscaled, t["kv"]]

    return ParityCase(
        f"decode_attention[{len(lengths)}x{max(lengths)},{q_heads}/{kv_heads}x{head_dim}]",
        lambda gen: _paged_inputs(gen, lengths, q_heads, kv_heads, head_dim),
        call,
        frozenset({"table"}),
    )


def prefill_case(lengths: list[int], q_heads: int, kv_heads: int, head_dim: int) -> ParityCase:
    """Cache write, then packed causal attention, of prompts of the given lengths."""

    def build(gen: torch.Generator) -> Tensors:
        inputs = _paged_inputs(gen, lengths, q_heads, kv_heads, head_dim)
        counts = torch.tensor(lengths)
        inputs["slots"] = inputs["slots"].repeat_interleave(counts)
        inputs["positions"] = torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths])
        inputs["qkv"] = normal(gen, sum(lengths), inputs["qkv"].shape[1])
        inputs["x"] = normal(gen, sum(lengths), 80, scale=1.7)
        return inputs

    def call(t: Tensors) -> list[torch.Tensor]:
        place = (t["page_table"], t["slots"], t["positions"])
        parts = (t["qkv"], t["q_norm"], t["k_norm"], t["table"], t["kv"], *place)
        q = qk_norm_rope_write(*parts, unscaled=t["x"])
        return [q, t["kv"], prefill_attention(q, t["kv"], *place)]

    name = f"prefill_attention[{len(lengths)}x{max(lengths)},{q_heads}/{kv_heads}x{head_dim}]"
    return ParityCase(name, build, call, frozenset({"table"}))


def depth_case(rows: int, q_heads: int, kv_heads: int, head_dim: int, steps: int) -> ParityCase:
    """The depth transformer's attention over `steps` positions in order."""

    def build(gen: torch.Generator) -> Tensors:
        return {
            "qkv": normal(gen, rows, steps, (q_heads + 2 * kv_heads) * head_dim),
            "x": normal(gen, rows, steps, 80, scale=1.7),
            "q_norm": around_one(gen, head_dim),
            "k_norm": around_one(gen, head_dim),
            "table": rope_table(32, head_dim, 1e6),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        cache = poison(rows, 2, kv_heads, 16, head_dim, like=t["qkv"])
        return [
            depth_attention(
                t["qkv"][:, j],
                t["q_norm"],
                t["k_norm"],
                t["table"],
                cache,
                j,
                unscaled=t["x"][:, j] if j % 2 else None,
            )
            for j in range(steps)
        ]

    name = f"depth_attention[{rows}x{steps},{q_heads}/{kv_heads}x{head_dim}]"
    return ParityCase(name, build, call, frozenset({"table"}))


def sampling_case(rows: int, vocab: int, first: bool) -> ParityCase:
    """Ids with mixed settings per row; an error of 0 means that all are equal."""
    float_names = {"logits", "temperature", "top_p", "penalty"}

    def build(gen: torch.Generator) -> Tensors:
        slots = rows + 1

        def pick(choices: list[float]) -> torch.Tensor:
            return torch.tensor(choices)[torch.randint(len(choices), (slots,), generator=gen)]

        return {
            "logits": normal(gen, rows, vocab, scale=3.0),
            "slots": torch.randperm(slots, generator=gen)[:rows].int(),
            "temperature": pick([0.0, 0.7, 0.9, 1.3]),
            "top_k": pick([0, 1, 5, 50]).int(),
            "top_p": pick([0.5, 0.9, 1.0]),
            "seeds": torch.randint(2**62, (slots,), generator=gen),
            "frames": torch.randint(4, (slots,), generator=gen).int(),
            "seen": torch.randint(2**30, (slots, -(-vocab // 32)), generator=gen).int(),
            "penalty": pick([1.0, 1.05, 1.5]),
            "min_frames": pick([0, 2]).int(),
            "next_table": normal(gen, vocab, 48),
            "x": normal(gen, rows, 80, scale=1.7),
        }

    def call(t: Tensors) -> list[torch.Tensor]:
        t = {name: t[name].float() if name in float_names else t[name] for name in t}
        rules = None
        if first:
            rules = FirstCodebookRules(
                t["seen"], t["penalty"], t["min_frames"], vocab * 2 // 3, vocab * 2 // 3 + 5
            )
        ids = torch.full((rows, 3), -1, dtype=torch.int32, device=t["logits"].device)
        next_rows = poison(rows, 48, like=t["next_table"])
        sample(
            t["logits"],
            t["slots"],
            SamplingParams(t["temperature"], t["top_k"], t["top_p"]),
            t["seeds"],
            t["frames"],
            7,
            ids[:, 1],
            rules=rules,
            next_table=t["next_table"],
            next_rows=next_rows,
            unscaled=None if first else t["x"],
        )
        return [ids, t["seen"], next_rows]

    return ParityCase(f"sample[{rows}x{vocab},{first}]", build, call, frozenset(float_names))
