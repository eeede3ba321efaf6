"""Has the teacher speak the corpus and keeps the codes: one or many processes, resumable.

Work is cut into blocks of lines; a block becomes one file. Workers take the blocks that have no
file yet, so that a run can be stopped, continued, and shared between machines.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from voxserve.core.errors import VoxserveError
from voxserve.models.vox_tiny.train import corpus, shards
from voxserve.models.vox_tiny.train.data import FRAMES_PER_HOUR
from voxserve.models.vox_tiny.train.encoder import CodecEncoder, load_encoder
from voxserve.models.vox_tiny.train.runlog import RunLog
from voxserve.models.vox_tiny.train.teacher import Teacher

LINES_PER_BLOCK = 400


def run(
    tables: Sequence[Path],
    encoder: Path,
    into: Path,
    workers: int,
    until_s: float,
    machine: tuple[int, int],
) -> None:
    """Speaks the blocks of corpus tables that have no file yet.

    Args:
        tables: From `corpus.save`, spoken in this order.
        encoder: Weights of the codec encoder.
        into: Folder of shards.
        workers: Processes.
        until_s: Seconds after which no new block is begun.
        machine: Which of how many machines this is; a machine takes its own blocks only.

    Raises:
        VoxserveError: A worker process failed; what the others spoke is kept.
    """
    into.mkdir(parents=True, exist_ok=True)
    number, machines = machine
    arguments = [
        (tables, encoder, into, worker * machines + number, workers * machines, until_s)
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
    num_failed = sum(process.exitcode != 0 for process in processes)
    if num_failed:
        raise VoxserveError(f"{num_failed} of {workers} workers failed: their blocks are missing")


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
    tables: Sequence[Path], encoder_path: Path, into: Path, first: int, step: int, until_s: float
) -> None:
    """Every `step`-th block from the `first` on, counted over all tables."""
    began = time.monotonic()
    torch.set_num_threads(1)
    teacher, encoder = Teacher(), load_encoder(encoder_path)
    log = RunLog(into / "log" / f"worker-{first}-of-{step}.jsonl")
    for path, lines, seed in list(_blocks(tables, into))[first::step]:
        if path.exists():
            continue
        if time.monotonic() - began > until_s:
            break
        spoken = speak(lines, teacher, encoder, seed)
        shards.write(path, spoken)
        hours = sum(len(u.codes) for u in spoken) / FRAMES_PER_HOUR
        log.add("block", file=path.name, utterances=len(spoken), hours=round(hours, 4))


def _blocks(
    tables: Sequence[Path], into: Path
) -> Iterator[tuple[Path, Sequence[corpus.Line], int]]:
    """(file, lines, number of the first line) of every block."""
    for table in tables:
        lines = corpus.load(table)
        for block, start in enumerate(range(0, len(lines), LINES_PER_BLOCK)):
            name = f"{table.name.split('.')[0]}-{block:04d}.npz"
            yield into / name, lines[start : start + LINES_PER_BLOCK], start
