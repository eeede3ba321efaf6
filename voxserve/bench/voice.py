"""How good the bundled voice is beyond word errors: how readings end, how natural they sound.

    python -m voxserve.bench.voice [--weights FILE] [-o RESULTS.json]

Naturalness is DNSMOS (predicted listeners' scores, 1 to 5) of the bundled sentences, beside the
teacher's readings of the same texts; it needs the extra `train`. Two of its scores are told for
both voices: overall by P.835, and P.808.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.bench import endings, machine, wer
from voxserve.bench.tables import Figure, Results
from voxserve.engine.engine import Engine
from voxserve.models.text.normalise import normalise
from voxserve.models.text.pieces import cut
from voxserve.models.vox_tiny.load import weights_path
from voxserve.models.vox_tiny.train.encoder import SAMPLE_RATE_HZ
from voxserve.models.vox_tiny.train.teacher import Teacher

_TEXTS = 1000
_SCORES = {"ovrl_mos": "overall (P.835)", "p808_mos": "P.808"}
_PIECE_CHARACTERS = 200


def ending_figures(engine: Engine, count: int) -> list[Figure]:
    """How many of so many readings did not end where their text did."""
    found = endings.read_all(engine, endings.texts(count))
    bad = [ending for ending in found if ending.fault]
    for ending in bad:
        print(f"{ending.fault} ({ending.seconds} s): {ending.text}", file=sys.stderr)  # noqa: T201
    name = f"runaways and missed ends in {len(found):,} texts"
    return [Figure(name, len(bad), "readings", 0, 0)]


def naturalness_figures(engine: Engine) -> list[Figure]:
    """DNSMOS of the engine's voice and of the teacher's on the same texts."""
    score = import_module("speechmos.dnsmos").run
    teacher = Teacher()
    texts = [sentence.text for sentence in wer.sentences()]
    ours = _mean_scores(score, texts, lambda text: engine.say(text, seed=0).pcm / 32768)
    theirs = _mean_scores(score, texts, lambda text: _taught(teacher, text))
    figures: list[Figure] = []
    for key, name in _SCORES.items():
        figures += [
            Figure(f"DNSMOS {name}, {len(texts)} sentences", ours[key], "", better="higher"),
            Figure(f"DNSMOS {name}, the teacher on them", theirs[key], "", better="higher"),
        ]
    apart = round(theirs["ovrl_mos"] - ours["ovrl_mos"], 3)
    return [*figures, Figure("DNSMOS overall, below the teacher's by", apart, "", None, 0.1)]


def _mean_scores(
    score: Callable[..., dict[str, float]],
    texts: Sequence[str],
    say: Callable[[str], NDArray[Any]],
) -> dict[str, float]:
    scores = [
        score(np.clip(wer.for_recogniser(say(text), SAMPLE_RATE_HZ), -1, 1), wer.RECOGNISER_RATE_HZ)
        for text in texts
    ]
    return {key: round(float(np.mean([s[key] for s in scores])), 3) for key in _SCORES}


def _taught(teacher: Teacher, text: str) -> NDArray[np.float32]:
    pieces = cut(normalise(text).text, _PIECE_CHARACTERS)
    spoken = [teacher.speak(piece, teacher.phonemes(piece), 0) for piece in pieces]
    return np.concatenate([speech.samples for speech in spoken if speech is not None])


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes a results file."""
    parser = argparse.ArgumentParser(prog="python -m voxserve.bench.voice")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--texts", type=int, default=_TEXTS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    size = weights_path(options.weights).stat().st_size
    with Engine("vox-tiny", weights=options.weights) as engine:
        rows = [
            *ending_figures(engine, options.texts),
            Figure("weights", round(size / 1e6, 1), "MB", 20, 12),
            *naturalness_figures(engine),
        ]
    for row in rows:
        print(f"{row.figure}: {row.value} {row.unit}")  # noqa: T201
    if options.output:
        Results(
            device=machine.cpu_name(),
            date=date.today().isoformat(),
            versions=machine.versions("torch", "numpy", "hibari-tts", "speechmos"),
            settings={"texts": options.texts, "seed": 0, **machine.revision()},
            command="python -m voxserve.bench.voice",
            rows=tuple(rows),
        ).save(options.output)


if __name__ == "__main__":
    main()
