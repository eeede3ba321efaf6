"""Measures a GPU's load table within a time budget, most deciding runs first.

`python -m voxserve.bench.gpu_load --figures "idle host libritts-4-10@170 overload" --output DIR`
ends in time with every finished run in DIR, also when it is told to stop; given those runs again
with `--resume`, it goes on from them. `voxserve.bench.load_results` makes figures of them. Several
processes, one a GPU, share the work by their figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from voxserve.bench import machine, run_store
from voxserve.bench.load_cases import Budget, Case
from voxserve.bench.load_session import LoadSession
from voxserve.bench.search import COMPLETE, DECIDING, ONE_SEED
from voxserve.core.errors import InvalidInput
from voxserve.engine.engine import Engine

_GRACE_S = 5.0  # before the budget's end, for packing
_START_S = 30.0


class OutOfTime(BaseException):
    """The budget's end, or a request to stop; what is finished is kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what was asked for, or tells what it would cost."""
    args = parser().parse_args(argv)
    args.split = args.split.replace(",", " ").split()
    words: list[str] = args.figures.split()
    cases = [Case.parse(word, args.start) for word in words if not _is_part(word)]
    if args.dry_run:
        print("\n".join(planned(args, words, cases)))  # noqa: T201
        return 0
    with _ends_in_time(args.budget - _GRACE_S), tempfile.TemporaryDirectory() as folder:
        _measure(args, words, cases, Path(folder))
    return 0


def _measure(
    args: argparse.Namespace, words: Sequence[str], cases: Sequence[Case], store: Path
) -> None:
    budget = Budget(args.budget - _GRACE_S)
    run_store.unpack(map(Path, args.resume), store)
    run_store.pack(store, Path(args.output))  # what was there is not lost if the start fails
    with Engine(
        args.model,
        args.device,
        weights=args.weights or None,
        name="load",
        sm_split=args.split[0],
        ttfa_target_s=0.2,
    ) as engine:
        session = LoadSession(engine, args.weights or None, store, Path(args.output), budget, args)
        try:
            session.summary |= {
                "gpu": machine.device_name(args.device),
                "versions": machine.versions("torch", "triton", "numpy"),
                "start_report": engine.start_report,
            }
            session.say(f"engine started: {engine.settings}")
            _act(session, words, cases)
        except OutOfTime as reason:
            session.say(f"ended: {reason}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            session.say(f"skipped: {', '.join(budget.skipped) or 'nothing'}")
            session.pack()


def _act(session: LoadSession, words: Sequence[str], cases: Sequence[Case]) -> None:
    """Points chosen by hand, cheap parts, then one level of certainty after the other."""
    for word in session.args.points.split():
        session.part(word, lambda word=word: _measure_point(session, word))
    overloads = [word for word in words if word.startswith("overload")]
    if overloads:
        session.budget.reserved_s = session.args.seconds + session.budget.overhead_s
    if len(session.args.split) > 1 and cases:
        session.part("split", lambda: session.choose_split(cases[0]))
    if "idle" in words:
        session.part("idle", session.idle)
    if "host" in words:
        session.part("host", session.host)
    for case in cases:
        session.part(case.name, lambda case=case: session.bracket(case))
    for level in (ONE_SEED, DECIDING, COMPLETE):
        for case in cases:
            session.part(case.name, lambda case=case, level=level: session.settle(case, level))
        session.budget.reserved_s = 0.0
        for word in overloads if level == ONE_SEED else ():
            usual = _usual_case(session, word)
            session.part("overload", lambda usual=usual: session.overload(usual))


def _measure_point(session: LoadSession, word: str) -> None:
    """A run of "FIGURE@RATE:SEED", where the figure may be "overload"."""
    figure, _, seed = word.partition(":")
    if not seed.isdecimal():
        raise InvalidInput(f"no point {word!r}; one is like libritts-4-10@180:1")
    is_overload = figure.startswith("overload@")
    case = _usual_case(session, figure) if is_overload else Case.parse(figure, session.args.start)
    session.point(case, int(seed), "overload" if is_overload else case.name)


def _usual_case(session: LoadSession, word: str) -> Case:
    ramp = "-".join(map(str, session.usual["chunk_ramp"]))
    _, at, rate = word.partition("@")
    return Case.parse(f"libritts-{ramp}{at}{rate}", session.args.start)


def _is_part(word: str) -> bool:
    return word in ("idle", "host", "overload") or word.startswith("overload@")


@contextmanager
def _ends_in_time(seconds: float) -> Generator[None]:
    """Raises `OutOfTime` in this thread when the time is over or the process is told to end."""

    def end(number: int, _frame: object) -> None:
        raise OutOfTime("the time is over" if number == signal.SIGALRM else "told to end")

    signals = (signal.SIGALRM, signal.SIGTERM)
    before = [signal.signal(number, end) for number in signals]
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def planned(args: argparse.Namespace, words: Sequence[str], cases: Sequence[Case]) -> list[str]:
    """What the parts cost, in seconds, as far as it can be told."""
    overhead = Budget(0.0).overhead_s
    short, long = args.short_seconds + overhead / 2, args.seconds + overhead
    costs: dict[str, float] = {"start": _START_S}
    if len(args.split) > 1 and cases:
        costs[f"choice of {len(args.split)} splits"] = len(args.split) * (short + 6.0)
    for word in words:
        if _is_part(word):
            costs[word] = long if word.startswith("overload") else 10.0
    for word in args.points.split():
        costs[word] = long
    for case in cases:
        costs[f"{case.name}, bracket, about 5 short runs"] = 5 * short
        costs[f"{case.name}, one seed, about 5 runs"] = 5 * long
        costs[f"{case.name}, deciding rates, about 6 more"] = 6 * long
    lines: list[str] = []
    total = 0.0
    for what, seconds in costs.items():
        total += seconds
        lines.append(f"{seconds:6.0f} s  (until {total:5.0f} of {args.budget:g})  {what}")
    return lines


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--model", default="qwen3-tts-1.7b")
    made.add_argument("--device", default="cuda")
    made.add_argument("--weights", default="random")
    made.add_argument(
        "--figures",
        default="idle host libritts-10 overload",
        help='"idle", "host", "overload[@CAPACITY]" and WORKLOAD-RAMP[-MODE][@RATE]',
    )
    made.add_argument("--points", default="", help='runs like "libritts-10@208:1 overload@229:2"')
    made.add_argument("--split", default="100/32", help="the best of several by a short run")
    made.add_argument("--start", type=float, default=160.0, help="first rate of a search")
    made.add_argument("--budget", type=float, default=540.0, help="seconds for everything")
    made.add_argument("--seconds", type=float, default=60.0, help="arrivals of a counted run")
    made.add_argument("--short-seconds", type=float, default=20.0, help="arrivals of a short run")
    made.add_argument("--held-seconds", type=float, default=40.0, help="speech of the host part")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--resume", nargs="*", default=[], help="archives or folders of earlier runs")
    made.add_argument("--revision", default="", help="of the code, where there is no git to ask")
    made.add_argument("--output", required=True, help="folder for at most three files")
    made.add_argument("--dry-run", action="store_true", help="tell what it would cost, and end")
    return made


if __name__ == "__main__":
    sys.exit(main())
