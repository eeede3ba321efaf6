"""`voxserve say`: speech from text, into a file, to the speakers, or chunk by chunk."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from voxserve.core.errors import InvalidInput
from voxserve.core.outputs import check_writable, naming
from voxserve.core.request import FinishReason
from voxserve.engine.audio import Audio, write_wav
from voxserve.engine.engine import Engine
from voxserve.engine.mailbox import DeliveredChunk
from voxserve.engine.speaker import check_output, play_chunks
from voxserve.engine.stream import Stream
from voxserve.models.registry import find

HELP = "speak a text"
STDIO = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Text, where the speech goes, how it is made."""
    parser.add_argument("text", nargs="*", help='what to say; "-" or nothing reads standard input')
    parser.add_argument("-o", "--output", metavar="FILE", help='WAV file ("-": standard output)')
    parser.add_argument("--play", action="store_true", help="play on this machine (the default)")
    parser.add_argument(
        "--stream", action="store_true", help="show each chunk with its deadline as it arrives"
    )
    parser.add_argument("--model", default="vox-tiny", help="default: vox-tiny")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, sim:NAME")
    parser.add_argument("--weights", help="a checkpoint folder or repo id")
    parser.add_argument("--voice", help="one of the model's voices")
    parser.add_argument("--language", help="one of the model's languages")
    parser.add_argument("--seed", type=int, default=0, help="same text and seed, same audio")


def run(args: argparse.Namespace) -> int:
    """Checks everything that can be checked before the model is loaded, then speaks."""
    text = _text(args.text)
    find(args.model)
    wants_sound = args.play or not (args.output or args.stream)
    if args.output == STDIO and sys.stdout is None:
        raise InvalidInput("standard output is closed; name a file with -o")
    if args.output not in (None, STDIO):
        check_writable(args.output, ".wav")
    if wants_sound:
        check_output()
    with Engine(args.model, args.device, weights=args.weights, name="say") as engine:
        audio = _speak(engine, text, args, wants_sound)
    for note in audio.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.output:
        _write(audio, args.output)
    print(_summary(audio, args.output), file=sys.stderr)
    return 0


def _text(words: list[str]) -> str:
    """The words given, or standard input."""
    if words and words != [STDIO]:
        text = " ".join(words)
    elif not words and sys.stdin.isatty():
        raise InvalidInput('no text; try: voxserve say "Hello there." -o hello.wav')
    else:
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"standard input is not {error.encoding} text") from None
    if not text.strip():
        raise InvalidInput("the text is empty")
    return text


def _speak(engine: Engine, text: str, args: argparse.Namespace, wants_sound: bool) -> Audio:
    options: dict[str, Any] = {"seed": args.seed, "voice": args.voice, "language": args.language}
    is_heard = wants_sound or args.stream
    with engine.stream(text, listener=is_heard, **options) as stream:
        # Samples on standard output leave no room there for a table.
        table = sys.stderr if args.output == STDIO else sys.stdout
        with _shown(stream, table if args.stream else None) as chunks:
            if wants_sound:
                play_chunks((chunk.pcm for chunk in chunks), stream.sample_rate_hz)
            else:
                for _ in chunks:
                    pass
        return stream.audio()


@contextmanager
def _shown(stream: Stream, table: IO[str] | None) -> Iterator[Iterator[DeliveredChunk]]:
    """The stream's chunks, shown as they pass: in a table, or a progress line on a terminal."""
    if table is not None:
        header = "chunk  frames  audio s  arrived s  deadline s  slack ms  stall ms"
        print(header, file=table, flush=True)
        yield (_print_chunk(stream, chunk, table) for chunk in stream)
        return
    from tqdm import tqdm

    form = "spoken {n:.1f} s in {elapsed}"
    with tqdm(disable=not sys.stderr.isatty(), bar_format=form, leave=False) as bar:
        yield (_count_chunk(stream, chunk, bar) for chunk in stream)


def _print_chunk(stream: Stream, chunk: DeliveredChunk, table: IO[str]) -> DeliveredChunk:
    """One line; times count from the request."""
    assert chunk.deadline_s is not None, "a streamed request has a listener"
    audio_s = len(chunk.pcm) / stream.sample_rate_hz
    arrived_s = chunk.delivered_s - stream.arrival_s
    deadline_s = chunk.deadline_s - stream.arrival_s
    slack_ms = (deadline_s - arrived_s) * 1000
    print(
        f"{chunk.ref.index:5d}  {chunk.ref.num_frames:6d}  {audio_s:7.3f}  {arrived_s:9.3f}"
        f"  {deadline_s:10.3f}  {slack_ms:8.0f}  {chunk.stall_s * 1000:8.0f}",
        file=table,
        flush=True,
    )
    return chunk


def _count_chunk(stream: Stream, chunk: DeliveredChunk, bar: Any) -> DeliveredChunk:
    bar.update(len(chunk.pcm) / stream.sample_rate_hz)
    return chunk


def _write(audio: Audio, output: str) -> None:
    if output == STDIO:
        with naming("standard output"):
            write_wav(sys.stdout.buffer, audio.pcm, audio.sample_rate_hz)
    else:
        audio.save(output)


def _summary(audio: Audio, output: str | None) -> str:
    where = f" in {output}" if output not in (None, STDIO) else ""
    return f"{audio.duration_s:.2f} s of speech{where}, {audio.speed:.1f} x real time" + (
        "" if audio.finish_reason is FinishReason.END else f", ended by: {audio.finish_reason}"
    )
