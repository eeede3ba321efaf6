"""Trains the language model on one device: resumable, logged, best validation snapshot kept."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import nn

from voxserve.core.errors import CheckpointError, InvalidInput
from voxserve.models.vox_tiny.train import data, snapshot
from voxserve.models.vox_tiny.train.network import LanguageModel, Losses, ModelShape
from voxserve.models.vox_tiny.train.rounding import set_rounding
from voxserve.models.vox_tiny.train.runlog import RunLog

_VALIDATION_ROWS = 384
_VALIDATION_SEED, _ORDER_SEED = 5, 1
_BETAS = (0.9, 0.98)
_CLIP_NORM = 1.0
_WARM_UP_STEPS = 300
_LAST_RATE = 0.03  # of the learning rate, at the end of the cosine
_AVERAGED_EVERY = 4
_MOST_HISTORY_LOST = 0.8


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a run goes.

    Attributes:
        seconds: Of training in all, over every resumption; the learning rate follows it.
        session_s: After so long this process ends, finished or not; the next one resumes.
        most_steps: An upper limit of steps, for short trials.
        learning_rate, weight_decay: Of AdamW.
        positions: Per batch, padded.
        guide_weight: Of the attention loss.
        end_weight: Of the end among the first codebook's codes.
        streamed_share: Of utterances whose text comes word by word.
        average: Decay of the weights' moving average, per step.
        rounded_from: Share of the run after which weights are rounded to 8 bits.
        evaluate_every_s, save_every_s: Seconds between evaluations and between saved states.
        patience: Evaluations without a better one after which the run ends.
        look_every_s: Seconds between looks for new shards.
    """

    seconds: float
    session_s: float = math.inf
    most_steps: int = 10**9
    learning_rate: float = 1.2e-3
    weight_decay: float = 0.05
    positions: int = 32_000
    guide_weight: float = 0.3
    end_weight: float = 3.0
    streamed_share: float = 0.4
    average: float = 0.9985
    rounded_from: float = 0.8
    evaluate_every_s: float = 30.0
    save_every_s: float = 120.0
    patience: int = 6
    look_every_s: float = 40.0


class Trainer:
    """One run: model, optimiser, average, and what was best so far."""

    def __init__(
        self,
        shape: ModelShape,
        plan: TrainingPlan,
        source: data.ShardFolders,
        device: str,
        folder: Path,
    ) -> None:
        """Makes a model, or resumes from the state in the folder.

        Args:
            shape: Of the model.
            plan: Of the run.
            source: Of the speech; what is written there during the run joins it.
            device: To train on.
            folder: For log, state and snapshots.
        """
        torch.manual_seed(_ORDER_SEED)
        self.plan, self.folder, self._source = plan, folder, source
        self.speech = data.SpeechData(source.first(), device)
        self.device = torch.device(device)
        self.model = LanguageModel(shape).to(self.device)
        self._averaged = {k: v.clone() for k, v in self.model.state_dict().items()}
        self._optimiser = self._make_optimiser()
        self._generator = torch.Generator().manual_seed(_ORDER_SEED)
        self.step, self.trained_s = 0, 0.0
        self.best, self._worse = math.inf, 0
        self.log = RunLog(folder / "log.jsonl")
        # What is held out stays the same while speech is added.
        held = self.speech.is_held_out.nonzero()[:_VALIDATION_ROWS, 0]
        if not len(held):
            raise InvalidInput(
                "too little speech: none of its texts is among the one in 64 held out"
            )
        self._held_out = held[self.speech.lengths[held].argsort()]
        self._resume()
        self.log.add(
            "start",
            **self._size(),
            parameters=sum(p.numel() for p in self.model.parameters()),
            shape=shape.as_dict(),
            plan=asdict(plan),
        )

    @property
    def _state_path(self) -> Path:
        return self.folder / "state.pt"

    def run(self) -> None:
        """Trains until the time, the steps or the patience is used up."""
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = True
            # cuDNN's attention plans anew for every shape: 2 steps a second instead of 7.
            torch.backends.cuda.enable_cudnn_sdp(False)
        batches = self._batches()
        opened = saved = evaluated = reported = looked = began = time.monotonic()
        meter = _Meter()
        while not self._is_done() and began - opened < self.plan.session_s:
            began = time.monotonic()
            meter.add(self._train_step(batches))
            self.trained_s += time.monotonic() - began
            if began - reported > self.plan.evaluate_every_s / 2:
                reported = began
                self._report(meter)
                meter = _Meter()
            if began - evaluated > self.plan.evaluate_every_s:
                self.evaluate()
                evaluated = time.monotonic()
            if began - looked > self.plan.look_every_s:
                batches = self._look(batches)
                looked = time.monotonic()
            if began - saved > self.plan.save_every_s:
                self.save()
                saved = time.monotonic()
        self._report(meter)
        self.evaluate()
        self.save()

    def _batches(self) -> Iterator[torch.Tensor]:
        taught = (~self.speech.is_held_out).nonzero()[:, 0]
        return data.epochs(self.speech.lengths, taught, self.plan.positions, self._generator)

    def _look(self, batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Takes in new shards; the order then begins anew over everything."""
        found = self._source.new()
        if not found:
            return batches
        self.speech.extend(found)
        self.log.add("added", **self._size())
        return self._batches()

    def _size(self) -> dict[str, float]:
        return {
            "step": self.step,
            "hours": round(self.speech.hours, 2),
            "utterances": len(self.speech.lengths),
        }

    def _is_done(self) -> bool:
        return (
            self.trained_s >= self.plan.seconds
            or self.step >= self.plan.most_steps
            or self._worse >= self.plan.patience
        )

    @property
    def _progress(self) -> float:
        return min(1.0, max(self.trained_s / self.plan.seconds, self.step / self.plan.most_steps))

    def _train_step(self, batches: Iterator[torch.Tensor]) -> Losses:
        rate = self._learning_rate()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        set_rounding(self.model, self._progress >= self.plan.rounded_from)
        index = next(batches)
        streamed = torch.rand(len(index), generator=self._generator) < self.plan.streamed_share
        batch = self.speech.batch(index, streamed, self._generator)
        kept = _history_kept(batch.codes.shape[:2], self.device)
        with self._autocast():
            losses = self.model(batch, kept, self.plan.end_weight)
            loss = losses.first + losses.rest + self.plan.guide_weight * losses.guide
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), _CLIP_NORM)
        self._optimiser.step()
        self.step += 1
        if self.step % _AVERAGED_EVERY == 0:
            self._update_average()
        return losses

    def _learning_rate(self) -> float:
        warm = min(1.0, (self.step + 1) / _WARM_UP_STEPS)
        cosine = 0.5 * (1 + math.cos(math.pi * self._progress))
        return self.plan.learning_rate * warm * (_LAST_RATE + (1 - _LAST_RATE) * cosine)

    @torch.no_grad()
    def _update_average(self) -> None:
        # An average that is young follows faster.
        decay = min(self.plan.average**_AVERAGED_EVERY, 1 - 10 * _AVERAGED_EVERY / (self.step + 40))
        current = self.model.state_dict()
        for name, value in self._averaged.items():
            value.lerp_(current[name], 1 - decay)

    def evaluate(self) -> float:
        """Validation loss of the averaged, rounded weights; keeps them where they are the best."""
        training = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self._averaged)
        self.model.eval()
        set_rounding(self.model, True)
        found = {name: self._validate(name == "streamed") for name in ("whole", "streamed")}
        set_rounding(self.model, False)
        self.model.train()
        self.model.load_state_dict(training)
        value = sum(part["first"] + part["rest"] for part in found.values()) / 2
        is_best = value < self.best
        self.log.add("evaluation", step=self.step, value=round(value, 4), best=is_best, **found)
        if is_best:
            self.best, self._worse = value, 0
            snapshot.save(self._averaged, self.model.shape, self.folder / "best")
        else:
            self._worse += 1
        return value

    @torch.no_grad()
    def _validate(self, is_streamed: bool) -> dict[str, float]:
        meter = _Meter()
        generator = torch.Generator().manual_seed(_VALIDATION_SEED)
        for index in self._held_out.split(max(1, len(self._held_out) // 4)):
            streamed = torch.full((len(index),), is_streamed)
            batch = self.speech.batch(index, streamed, generator)
            kept = torch.ones(batch.codes.shape[:2], dtype=torch.bool, device=self.device)
            with self._autocast():
                meter.add(self.model(batch, kept, 1.0), float(len(batch.real_frames)))
        return meter.means()

    def _report(self, meter: _Meter) -> None:
        if meter.weight:
            self.log.add(
                "training",
                step=self.step,
                trained_s=round(self.trained_s, 1),
                learning_rate=self._learning_rate(),
                steps=meter.count,
                **meter.means(),
            )

    def save(self) -> None:
        """Saves everything a resumed run needs."""
        part = self._state_path.with_suffix(".part")
        state = {
            "model": self.model.state_dict(),
            "averaged": self._averaged,
            "optimiser": self._optimiser.state_dict(),
            "step": self.step,
            "trained_s": self.trained_s,
            "best": self.best,
            "worse": self._worse,
            "held_out": self._held_out_lengths(),
        }
        torch.save(state, part)
        part.rename(self._state_path)

    def start_from(self, folder: Path) -> None:
        """Begins with the weights of a snapshot instead of random ones; a resumed run does not."""
        if self.step:
            return
        _, weights = snapshot.load(folder)
        self.model.load_state_dict(weights)
        self._averaged = {k: v.clone() for k, v in self.model.state_dict().items()}

    def _resume(self) -> None:
        if not self._state_path.exists():
            return
        try:
            state = torch.load(self._state_path, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self._averaged = state["averaged"]
            self._optimiser.load_state_dict(state["optimiser"])
            self.step, self.trained_s = state["step"], state["trained_s"]
            # Added speech can put others first: what was best on those before says nothing then.
            if state.get("held_out") == self._held_out_lengths():
                self.best, self._worse = state["best"], state["worse"]
        # What the unpickler raises for bytes that are no state is not documented.
        except (RuntimeError, LookupError, ValueError, EOFError, UnpicklingError) as error:
            raise CheckpointError(
                f"cannot resume from {self._state_path}, which is damaged or of another shape: "
                "give the shape it was begun with, or begin in another folder"
            ) from error
        self._generator.manual_seed(_ORDER_SEED + self.step)

    def _held_out_lengths(self) -> list[int]:
        return self.speech.lengths[self._held_out].tolist()

    def _make_optimiser(self) -> torch.optim.Optimizer:
        parameters = list(self.model.parameters())
        groups = [
            {
                "params": [p for p in parameters if p.dim() >= 2],
                "weight_decay": self.plan.weight_decay,
            },
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused = self.device.type == "cuda"
        return torch.optim.AdamW(groups, lr=self.plan.learning_rate, betas=_BETAS, fused=fused)

    def _autocast(self) -> torch.autocast:
        is_cuda = self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_cuda)


class _Meter:
    """Weighted means of losses, summed on the device."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self.weight, self.count = 0.0, 0

    def add(self, losses: Losses, weight: float = 1.0) -> None:
        for name in ("first", "rest", "guide", "accuracy", "end_recall"):
            value = getattr(losses, name).detach() * weight
            self._sums[name] = self._sums.get(name, torch.zeros_like(value)) + value
        self.weight += weight
        self.count += 1

    def means(self) -> dict[str, float]:
        return {name: round(float(value) / self.weight, 4) for name, value in self._sums.items()}


def _history_kept(shape: torch.Size, device: torch.device) -> torch.Tensor:
    """[rows, frames] bool: half the rows lose up to four fifths of their frames, at random.

    Then only the text can tell what comes next, and the model learns to read it.
    """
    lost = ((torch.rand(shape[0], 1, device=device) - 0.5) * 2 * _MOST_HISTORY_LOST).clamp(min=0.03)
    return torch.rand(shape, device=device) >= lost
