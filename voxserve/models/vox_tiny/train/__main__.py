"""The training command: `python -m voxserve.models.vox_tiny.train STAGE ...`.

Stages, each repeatable alone:

    corpus   texts and phonemes, in parts
    speak    the teacher speaks a part; codes and times go to shards
    merge    shards to a few files
    lm       trains the language model; resumes where it was stopped
    pack     the best snapshot, in 8 bits, with the bundled codec decoder
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import torch

from voxserve.core.errors import InvalidInput, VoxserveError
from voxserve.models.vox_tiny.train import corpus, data, shards, sources, speak
from voxserve.models.vox_tiny.train.encoder import BUNDLED_ENCODER
from voxserve.models.vox_tiny.train.network import ModelShape
from voxserve.models.vox_tiny.train.pack import pack
from voxserve.models.vox_tiny.train.runlog import RunLog
from voxserve.models.vox_tiny.train.teacher import Teacher
from voxserve.models.vox_tiny.train.trainer import Trainer, TrainingPlan


def main(arguments: list[str] | None = None) -> None:
    """Runs one stage; a refusal or an interrupt ends the process with one line that says why."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except (VoxserveError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: interrupted\n")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least 1 is needed")
    return number


def _amount(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{number}: 0 or more is needed")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m voxserve.models.vox_tiny.train")
    stages = parser.add_subparsers(required=True)
    stage = stages.add_parser("corpus", help="write texts and phonemes")
    told = "folder of the unpacked text packages; one that is not there is fetched"
    stage.add_argument("--sources", type=Path, required=True, help=told)
    stage.add_argument("--into", type=Path, required=True)
    stage.add_argument("--parts", type=_count, default=8)
    stage.add_argument("--only", type=int, nargs="*", help="write these parts only")
    stage.set_defaults(run=_corpus)
    stage = stages.add_parser("speak", help="have the teacher speak a part")
    stage.add_argument("--corpus", type=Path, nargs="+", required=True, help="tables")
    stage.add_argument("--encoder", type=Path, default=BUNDLED_ENCODER)
    stage.add_argument("--into", type=Path, required=True)
    stage.add_argument("--workers", type=_count, default=1)
    stage.add_argument("--until", type=_amount, default=float("inf"), help="seconds")
    stage.add_argument("--machine", type=int, nargs=2, default=(0, 1), help="number, of how many")
    stage.set_defaults(run=_speak)
    stage = stages.add_parser("merge", help="join shards")
    stage.add_argument("--shards", type=Path, required=True)
    stage.add_argument("--into", type=Path, required=True)
    stage.add_argument("--largest-mb", type=_amount, default=15.0)
    stage.set_defaults(run=_merge)
    _add_lm(stages.add_parser("lm", help="train the language model"))
    stage = stages.add_parser("pack", help="write the file that is served")
    stage.add_argument("--snapshot", type=Path, required=True)
    stage.add_argument("--into", type=Path, required=True)
    stage.set_defaults(run=lambda options: pack(options.snapshot, options.into))
    return parser


def _add_lm(stage: argparse.ArgumentParser) -> None:
    stage.add_argument("--shards", type=Path, nargs="+", required=True, help="folders")
    stage.add_argument("--into", type=Path, required=True, help="log, state and snapshots")
    stage.add_argument("--device", default="cuda")
    stage.add_argument("--start-from", type=Path, help="snapshot to begin with")
    # Every field of the plan and of the shape is an option of its name and type.
    for kind in (TrainingPlan, ModelShape):
        for item in fields(kind):
            name = f"--{item.name.replace('_', '-')}"
            convert = _amount if item.type == "float" else _count
            is_needed = item.name == "seconds"
            told = "of training in all" if is_needed else f"default {item.default}"
            stage.add_argument(
                name, type=convert, required=is_needed, default=argparse.SUPPRESS, help=told
            )
    stage.set_defaults(run=_lm)


def _corpus(options: argparse.Namespace) -> None:
    if wrong := [part for part in options.only or () if not 0 <= part < options.parts]:
        raise InvalidInput(f"--only {wrong[0]}: there are parts 0 to {options.parts - 1}")
    if not options.sources.exists():
        sources.unpack(options.sources)
    options.into.mkdir(parents=True, exist_ok=True)
    teacher, log = Teacher(), RunLog(options.into / "log.jsonl")
    for part in options.only or range(options.parts):
        lines = corpus.build(options.sources, teacher.phonemes, part, options.parts)
        path = options.into / f"part{part}.tsv.gz"
        corpus.save(lines, path)
        log.add("part", file=path.name, texts=len(lines))


def _speak(options: argparse.Namespace) -> None:
    number, machines = options.machine
    if not 0 <= number < machines:
        raise InvalidInput(f"--machine {number} {machines}: {machines} count from 0")
    speak.run(
        options.corpus,
        options.encoder,
        options.into,
        options.workers,
        options.until,
        tuple(options.machine),
    )


def _merge(options: argparse.Namespace) -> None:
    if not shards.merge(options.shards, options.into, int(options.largest_mb * 1e6)):
        raise InvalidInput(f"no shards (*.npz) in {options.shards}")


def _lm(options: argparse.Namespace) -> None:
    given = vars(options)
    plan = TrainingPlan(**{f.name: given[f.name] for f in fields(TrainingPlan) if f.name in given})
    shape = ModelShape(**{f.name: given[f.name] for f in fields(ModelShape) if f.name in given})
    try:
        torch.zeros(1, device=options.device)
    except (RuntimeError, AssertionError) as error:  # of a torch without CUDA
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f"--device {options.device} is not to be had: {reason}") from error
    source = data.ShardFolders(options.shards)
    trainer = Trainer(shape, plan, source, options.device, options.into)
    if options.start_from:
        trainer.start_from(options.start_from)
    trainer.run()


if __name__ == "__main__":
    main()
