"""A small model, and streamed texts fed to it as a scheduler would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from models import contract
from numpy.typing import NDArray

from voxserve.core.jobs import RowStatus
from voxserve.models.request import Sampling, SpeechOptions
from voxserve.models.vox_tiny.load import load
from voxserve.models.vox_tiny.model import VoxTiny
from voxserve.models.vox_tiny.state import VoxTinyState
from voxserve.models.vox_tiny.train import pack, snapshot
from voxserve.models.vox_tiny.train.network import LanguageModel, ModelShape

# The codec decoder is the bundled one, so codes are as many and as large as its.
SHAPE = ModelShape(
    hidden=64,
    layers=3,
    heads=4,
    kv_heads=2,
    ffn=96,
    depth_hidden=48,
    depth_heads=3,
    depth_ffn=64,
    dropout=0.0,
)
GREEDY = Sampling(temperature=0.0, depth_temperature=0.0)


def make_snapshot(folder: Path) -> Path:
    """Random weights, large enough to make decided choices and to end now and then."""
    torch.manual_seed(0)
    model = LanguageModel(SHAPE)
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and ".dw." not in name:
            parameter.data *= 8
    model.h0.weight.data[SHAPE.end_code] *= 4
    snapshot.save(model.state_dict(), SHAPE, folder)
    return folder


def load_packed(folder: Path) -> VoxTiny:
    """The served model of a snapshot."""
    torch.set_num_threads(1)
    path = folder.with_suffix(".safetensors")
    pack.pack(folder, path)
    return load("cpu", str(path))


@dataclass(slots=True)
class StreamedRequest:
    """One text: its rows, and how many of them the slot has been given."""

    rows: NDArray[np.int32]
    options: SpeechOptions
    given: int = 1
    is_complete: bool = False
    starved: int = 0


def streamed(model: VoxTiny, parts: list[str], options: SpeechOptions) -> StreamedRequest:
    """A text that arrives in parts."""
    feed = model.open_text()
    rows = [feed.push(part) for part in parts]
    return StreamedRequest(np.concatenate([*rows, feed.finish()]), options)


def begin(model: VoxTiny, state: VoxTinyState, slot: int, request: StreamedRequest) -> None:
    """Opens a slot and runs the prompt: the first row."""
    prepared = model.preprocess_streamed(request.rows, request.options)
    model.open_slot(state, slot, prepared)
    model.prefill(state, model.pack_prefill((slot,), prepared.pieces, model.device))


def give(
    model: VoxTiny, state: VoxTinyState, slot: int, request: StreamedRequest, rows: int
) -> None:
    """Gives a slot so many more rows; if fewer are left, with the news that these are the last."""
    fresh = request.rows[request.given : request.given + rows]
    request.is_complete = len(fresh) < rows
    model.append_text(state, slot, request.given - 1, fresh, request.is_complete)
    request.given += len(fresh)


def speak(
    model: VoxTiny, requests: list[StreamedRequest], rows_at_once: int, most_frames: int = 300
) -> list[torch.Tensor]:
    """Codes of requests that run side by side.

    A row runs a step only when its text allows the frame; else it gets `rows_at_once` more.
    """
    state = contract.allocate(model, len(requests), 400)
    for slot, request in enumerate(requests):
        begin(model, state, slot, request)
    while True:
        live = [
            slot
            for slot in range(len(requests))
            if state.status[slot] == RowStatus.CONTINUE and state.num_frames[slot] < most_frames
        ]
        if not live:
            break
        ready = [s for s in live if _may_step(state, s, requests[s])]
        for slot in set(live) - set(ready):
            requests[slot].starved += 1
            give(model, state, slot, requests[slot], rows_at_once)
        model.decode(state, torch.tensor(ready, dtype=torch.int32), 0)
    return [
        state.codes[slot, : int(state.num_frames[slot])].clone() for slot in range(len(requests))
    ]


def _may_step(state: VoxTinyState, slot: int, request: StreamedRequest) -> bool:
    return request.is_complete or int(state.num_frames[slot]) < request.given
