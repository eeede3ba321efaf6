"""Draws against a float64 reference: distributions, keys, and that settings belong to a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from golden.philox import gumbel
from scipy.stats import chi2_contingency, chisquare

from voxserve.kernels.philox import gumbel_noise
from voxserve.models.blocks.sampling import SamplingDefaults, SamplingState, setting_row
from voxserve.models.request import Sampling

VOCAB, FIRST_SUPPRESSED, END = 70, 60, 66
NUM_DRAWS = 8_000
SMALLEST_P = 1e-3  # seeds are fixed: a right sampler passes always, a wrong one is far below
LOGITS = np.random.default_rng(1).normal(0.0, 2.0, VOCAB)


@dataclass(frozen=True)
class Case:
    """Settings of the first codebook and what a request has seen."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    seen: tuple[int, ...] = ()
    frame: int = 5
    min_frames: int = 2


CASES = {
    "plain": Case(),
    "cold": Case(temperature=0.6),
    "hot": Case(temperature=1.7),
    "top_k": Case(top_k=7),
    "top_p": Case(top_p=0.8),
    "both": Case(temperature=0.9, top_k=20, top_p=0.9),
    "penalty": Case(penalty=1.8, seen=(0, 3, 7, 20, 41)),
    "early": Case(frame=1),
    "defaults": Case(0.9, 50, 1.0, 1.05, seen=tuple(range(0, 60, 2))),
}


def probabilities(case: Case) -> np.ndarray:
    """The same rules in float64, in the reference implementation's order."""
    scores = LOGITS.copy()
    seen = list(case.seen)
    scores[seen] = np.where(
        scores[seen] < 0, scores[seen] * case.penalty, scores[seen] / case.penalty
    )
    hidden = np.arange(VOCAB) >= FIRST_SUPPRESSED
    hidden[END] = case.frame < case.min_frames
    scores[hidden] = -np.inf
    scores /= case.temperature
    if case.top_k:
        scores[scores < np.sort(scores)[-case.top_k]] = -np.inf
    mass = np.exp(scores - scores.max())
    if case.top_p < 1.0:
        order = np.argsort(-mass)
        before = np.concatenate([[0.0], np.cumsum(mass[order])[:-1]]) / mass.sum()
        mass[order[before >= case.top_p]] = 0.0
    return mass / mass.sum()


def first_state(case: Case, num_slots: int) -> SamplingState:
    state = SamplingState(num_slots, VOCAB, FIRST_SUPPRESSED, END, torch.device("cpu"))
    state.seeds.copy_(torch.arange(num_slots) * 7919 + 13)
    state.first.temperature.fill_(case.temperature)
    state.first.top_k.fill_(case.top_k)
    state.first.top_p.fill_(case.top_p)
    state.rules.penalty.fill_(case.penalty)
    state.rules.min_frames.fill_(case.min_frames)
    for token in case.seen:
        state.rules.seen[:, token // 32] |= 1 << token % 32
    return state


def draw_first(state: SamplingState, frame: int) -> np.ndarray:
    num_slots = len(state.seeds)
    logits = torch.from_numpy(LOGITS).float().expand(num_slots, -1)
    slots = torch.arange(num_slots, dtype=torch.int32)
    frames = torch.full((num_slots,), frame, dtype=torch.int32)
    out = torch.empty(num_slots, dtype=torch.int32)
    return state.draw_first(logits, slots, frames, out).numpy()


def draw_depth(seeds: torch.Tensor, frame: int, codebook: int, top_k: int = 0) -> np.ndarray:
    num_slots = len(seeds)
    state = SamplingState(num_slots, VOCAB, FIRST_SUPPRESSED, END, torch.device("cpu"))
    state.seeds.copy_(seeds)
    state.depth.temperature.fill_(1.0)
    state.depth.top_k.fill_(top_k)
    out = torch.empty(num_slots, dtype=torch.int32)
    logits = torch.from_numpy(LOGITS).float().expand(num_slots, -1)
    slots = torch.arange(num_slots, dtype=torch.int32)
    frames = torch.full((num_slots,), frame, dtype=torch.int32)
    state.draw_depth(logits, slots, frames, codebook, out, None, None)
    return out.numpy()


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_distribution(name: str) -> None:
    case = CASES[name]
    expected = probabilities(case) * NUM_DRAWS
    counts = np.bincount(draw_first(first_state(case, NUM_DRAWS), case.frame), minlength=VOCAB)
    assert counts[expected == 0].sum() == 0, "impossible ids were drawn"
    rare = (expected > 0) & (expected < 5)  # too few for chi-square: counted together
    observed = np.append(counts[expected >= 5], counts[rare].sum())
    wanted = np.append(expected[expected >= 5], expected[rare].sum())
    kept = wanted > 0
    assert chisquare(observed[kept], wanted[kept]).pvalue > SMALLEST_P


def test_the_test_would_notice_a_wrong_temperature() -> None:
    wanted = probabilities(Case(temperature=1.15)) * NUM_DRAWS
    counts = np.bincount(draw_first(first_state(Case(), NUM_DRAWS), 5), minlength=VOCAB)
    common = wanted >= 5
    scale = counts[common].sum() / wanted[common].sum()
    assert chisquare(counts[common], wanted[common] * scale).pvalue < SMALLEST_P


def test_depth_codebooks_have_no_impossible_ids() -> None:
    mass = np.exp(LOGITS - LOGITS.max())
    counts = np.bincount(draw_depth(torch.arange(NUM_DRAWS), 3, 2), minlength=VOCAB)
    wanted = mass / mass.sum() * NUM_DRAWS
    common = wanted >= 5
    scale = counts[common].sum() / wanted[common].sum()
    assert chisquare(counts[common], wanted[common] * scale).pvalue > SMALLEST_P
    assert counts[FIRST_SUPPRESSED:].sum() > 0


@pytest.mark.parametrize("other", ["frame", "codebook", "seed"])
def test_neighbouring_keys_are_independent(other: str) -> None:
    """Draws with keys one apart, as pairs: their table must look like a product."""
    seeds = torch.arange(NUM_DRAWS) * 2
    first = draw_depth(seeds, 3, 2, top_k=6)
    second = draw_depth(
        seeds + (other == "seed"), 3 + (other == "frame"), 2 + (other == "codebook"), top_k=6
    )
    best = np.argsort(-LOGITS)[:6]
    table = np.array([[np.sum((first == a) & (second == b)) for b in best] for a in best])
    assert table.sum() == NUM_DRAWS
    assert chi2_contingency(table).pvalue > SMALLEST_P
    assert not np.array_equal(first, second)


def test_noise_is_keyed_and_has_no_other_input() -> None:
    """Equal to an independent Philox, for seeds beyond 32 bits, whatever shares the batch."""
    seeds = torch.tensor([1, 2**40 + 7, 2**63 - 1])
    frames = torch.tensor([0, 9, 4000])
    for codebook, candidates in ((0, 3072), (15, 2048), (3, 70)):
        noise = gumbel_noise(seeds, frames, codebook, candidates)
        for row in range(3):
            expected = gumbel(int(seeds[row]), int(frames[row]), codebook, candidates)
            assert np.abs(noise[row].numpy() - expected).max() < 1e-4
        alone = gumbel_noise(seeds[1:2], frames[1:2], codebook, candidates)
        assert torch.equal(noise[1:2], alone)


def test_greedy_takes_the_best_whatever_the_seed() -> None:
    drawn = draw_first(first_state(Case(temperature=0.0), 50), 5)
    assert set(drawn.tolist()) == {int(np.argmax(LOGITS[:FIRST_SUPPRESSED]))}


def test_an_id_once_drawn_is_remembered() -> None:
    state = first_state(Case(temperature=0.0, penalty=5.0), 1)
    drawn = [int(draw_first(state, frame)[0]) for frame in range(5, 9)]
    assert len(set(drawn)) == 4, "each was penalised below the next"
    state.rules.seen[0, END // 32] |= 1 << END % 32
    state.forget_end(torch.tensor([0], dtype=torch.int32))
    assert not int(state.rules.seen[0, END // 32]) >> END % 32 & 1
    remembered = sum(bin(int(word) & 0xFFFFFFFF).count("1") for word in state.rules.seen[0])
    assert remembered == 4, "only the end is forgotten"


def test_a_request_overrides_the_defaults_it_names() -> None:
    state = SamplingState(2, VOCAB, FIRST_SUPPRESSED, END, torch.device("cpu"))
    wanted = Sampling(top_k=4, depth_temperature=0.2)
    row = np.frombuffer(setting_row(3, wanted, SamplingDefaults(top_p=0.7)), np.int32)
    state.open(torch.tensor([1]), torch.tensor(row[None]))
    assert int(state.first.top_k[1]) == 4
    assert int(state.depth.top_k[1]) == 50
    assert float(state.first.top_p[1]) == pytest.approx(0.7)
    assert float(state.depth.temperature[1]) == pytest.approx(0.2)
    assert float(state.first.temperature[0]) == 0.0, "the other slot is untouched"
