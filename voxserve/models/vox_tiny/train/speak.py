"""Has the teacher speak the corpus and keeps the codes: one or many processes, resumable.

Work is cut into blocks of lines; a block becomes one file. Workers take the blocks that have no
file yet, so that a run can be stopped, continued, and shared between machines.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from voxserve.models.vox_tiny.train import corpus, shards
from voxserve.models.vox_tiny.train.encoder import CodecEncoder, load_encoder
from voxserve.models.vox_tiny.train.runlog import RunLog
from voxserve.models.vox_tiny.train.teacher import Teacher

LINES_PER_BLOCK = 400
_FRAMES_PER_HOUR = 45_000


def run(
    table: Path, encoder: Path, into: Path, workers: int, until_s: float, shard: tuple[int, int]
) -> None:
    """Speaks the blocks of a corpus table that have no file yet.

    Args:
        table: From `corpus.save`.
        encoder: Weights of the codec encoder.
        into: Folder of shards.
        workers: Processes.
        until_s: Seconds after which no new block is begun.
        shard: Which of how many machines this is; a machine takes its own blocks only.
    """
    into.mkdir(parents=True, exist_ok=True)
    arguments = [
        (table, encoder, into, worker * shard[1] + shard[0], workers * shard[1], until_s)
        for worker in range(workers)
    ]
    if workers == 1:
        _work(*arguments[0])
        return
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_work, args=a) for a in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def speak(
    lines: Sequence[corpus.Line], teacher: Teacher, encoder: CodecEncoder, first_seed: int
) -> list[shards.Utterance]:
    """Speaks lines and encodes them; lines without times are left out."""
    spoken = []
    for number, line in enumerate(lines):
        speech = teacher.speak(line.text, line.phonemes, first_seed + number)
        if speech is None:
            continue
        codes = encoder.encode(torch.from_numpy(speech.samples), torch.from_numpy(speech.pitch))
        ends = np.rint(speech.ends).astype(np.uint16)
        spoken.append(shards.Utterance(line.text, codes.numpy().astype(np.uint16), ends))
    return spoken


def _work(
    table: Path, encoder_path: Path, into: Path, first: int, step: int, until_s: float
) -> None:
    began = time.monotonic()
    torch.set_num_threads(1)
    teacher, encoder = Teacher(), load_encoder(encoder_path)
    lines = corpus.load(table)
    name = table.name.split(".")[0]
    log = RunLog(into / "log" / f"{name}-{first}.jsonl")
    for block in range(first, -(-len(lines) // LINES_PER_BLOCK), step):
        path = into / f"{name}-{block:04d}.npz"
        if path.exists():
            continue
        if time.monotonic() - began > until_s:
            break
        start = block * LINES_PER_BLOCK
        spoken = speak(lines[start : start + LINES_PER_BLOCK], teacher, encoder, start)
        shards.write(path, spoken)
        hours = sum(len(u.codes) for u in spoken) / _FRAMES_PER_HOUR
        log.add("block", block=block, utterances=len(spoken), hours=round(hours, 4))
