"""`voxserve profile`: times a model's stages on this machine and writes a profile."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from voxserve.core import profile as profiles
from voxserve.core.errors import DeviceUnavailable, InvalidInput
from voxserve.core.outputs import check_writable, naming
from voxserve.core.profile import Profile, StageTime
from voxserve.core.workload import find

HELP = "time a model's stages and write a profile for simulations"


def configure(parser: argparse.ArgumentParser) -> None:
    """Model, device, where the profile goes, what load the split is chosen for."""
    parser.add_argument("--model", default="vox-tiny", help="default: vox-tiny")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda[:n]")
    parser.add_argument("--weights", help='a checkpoint folder or repo id, or "random"')
    parser.add_argument("-o", "--output", metavar="FILE", help="default: DEVICE-MODEL.json")
    parser.add_argument("--rate", type=float, help="target requests per second (GPU split)")
    parser.add_argument("--workload", default="libritts", help="mean request of the split choice")


def run(args: argparse.Namespace) -> int:
    """Times the stages, writes the file and prints what it says."""
    kind = args.device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise DeviceUnavailable(f"profiling runs on 'cpu' or 'cuda', not on {args.device!r}")
    path = Path(args.output or f"{kind}-{args.model}.json")
    check_writable(path, ".json")
    if args.rate is not None and not 0 < args.rate < math.inf:
        raise InvalidInput(f"--rate {args.rate} is not positive and finite")
    find(args.workload)
    from voxserve.models import registry

    model = registry.load(args.model, args.device, args.weights)
    if kind == "cpu":
        from voxserve.bench.cpu_profile import profile_cpu

        profile = profile_cpu(model, path.stem, progress=sys.stderr.isatty())
    else:
        from voxserve.bench.gpu_profile import profile_gpu

        profile = profile_gpu(model, path.stem, progress=lambda line: print(line, file=sys.stderr))
    with naming(path):
        profiles.save(profile, path)
    _tell(profile) if kind == "cpu" else _tell_splits(profile, path, args)
    print(f'{path}: use it with --profile {path} or device="sim:{path}"')
    return 0


def _tell(profile: Profile) -> None:
    print(f"{profile.device}: {profile.model}, one thread per lane")
    for time in profile.times:
        if time.sms == 1 or time.stage == "prefill" or time.beside:
            print(_line(time))


def _tell_splits(profile: Profile, path: Path, args: argparse.Namespace) -> None:
    """The Pareto table, the chosen split and a chart beside the profile."""
    from voxserve.bench.split_chart import save_split_chart, split_table
    from voxserve.sim.placing import expected_load, split_of

    choice = split_of(profile, expected_load(profile, args.workload, args.rate))
    print(f"{profile.device}: {profile.model}, {len(profile.times)} stage times")
    print(split_table(choice))
    print(f"split {choice.split}: {choice.why}")
    chart = path.with_suffix(".html")
    with naming(chart):
        save_split_chart(choice, f"{profile.model} on {profile.device}", chart)
    print(f"{chart}: the same as a chart")


def _line(time: StageTime) -> str:
    size = f"{time.tokens} tokens" if time.tokens else f"{time.frames} frames"
    what = time.stage if time.stage == "decode" else f"{time.stage}, {size}"
    beside = f" beside {' and '.join(time.beside)}" if time.beside else ""
    return f"{time.seconds * 1e3:9.2f} ms  {what}, {time.rows} rows{beside}"
