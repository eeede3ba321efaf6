"""`voxserve profile`: times a model's stages on this machine and writes a profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from voxserve.core import profile as profiles
from voxserve.core.errors import DeviceUnavailable
from voxserve.core.profile import StageTime

HELP = "time a model's stages and write a profile for simulations"


def configure(parser: argparse.ArgumentParser) -> None:
    """Model, device, where the profile goes."""
    parser.add_argument("--model", default="vox-tiny", help="default: vox-tiny")
    parser.add_argument("--device", default="cpu", help="cpu (default)")
    parser.add_argument("--weights", help='a checkpoint folder or repo id, or "random"')
    parser.add_argument("-o", "--output", metavar="FILE", help="default: DEVICE-MODEL.json")


def run(args: argparse.Namespace) -> int:
    """Times the stages, writes the file and prints what it says."""
    if args.device != "cpu":
        raise DeviceUnavailable(f"profiling runs on 'cpu', not on {args.device!r}")
    path = Path(args.output or f"{args.device}-{args.model}.json")
    from voxserve.bench.cpu_profile import profile_cpu
    from voxserve.models import registry

    model = registry.load(args.model, args.device, args.weights)
    profile = profile_cpu(model, path.stem, progress=sys.stderr.isatty())
    profiles.save(profile, path)
    print(f"{profile.device}: {profile.model}, one thread per lane")
    for time in profile.times:
        if time.sms == 1 or time.stage == "prefill" or time.beside:
            print(_line(time))
    print(f'{path}: use it with --profile {path} or device="sim:{path}"')
    return 0


def _line(time: StageTime) -> str:
    size = f"{time.tokens} tokens" if time.tokens else f"{time.frames} frames"
    what = time.stage if time.stage == "decode" else f"{time.stage}, {size}"
    beside = f" beside {' and '.join(time.beside)}" if time.beside else ""
    return f"{time.seconds * 1e3:9.2f} ms  {what}, {time.rows} rows{beside}"
