"""Work that takes seconds, in a process of its own: neither the engine nor the kernel waits for it.

The task is pickled to the process, which answers with pickled messages; `main` is its other end.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from voxserve.core.errors import InvalidInput, VoxserveError

Send = Callable[[str, Any], None]
PART = 50  # items in a message: writing or reading one, 0.25 ms, must not hold up the engine


class Task(Protocol):
    """What can be pickled and worked on; small, or pickling it holds up the engine."""

    def work(self, items: list[Any], send: Send) -> None:
        """Sends any messages and returns."""
        ...


class Aside:
    """One task under way.

    Args:
        task: Sent to the process when `messages` begins.
        items: What it works on, such as records; sent in parts.
    """

    def __init__(self, task: Task, items: Sequence[Any] = ()) -> None:
        self._task = task
        self._items = items
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_cancelled = False

    def messages(self) -> Iterator[tuple[str, Any]]:
        """What the task sends, as it comes.

        Raises:
            InvalidInput: The task was refused; says why.
            VoxserveError: It was cancelled, or its process ended early.
        """
        process = self._start()
        assert process.stdin is not None, "was asked for"
        assert process.stdout is not None, "was asked for"
        try:
            pickle.dump(self._task, process.stdin)
            for part in parts(self._items):
                pickle.dump(part, process.stdin)
            process.stdin.close()
            while True:
                kind, content = pickle.load(process.stdout)
                if kind == "refused":
                    raise InvalidInput(content)
                if kind == "end":
                    return
                yield kind, content
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            why = "another one took its place" if self.is_cancelled else "it ended early"
            raise VoxserveError(f"the simulation gave no answer: {why}") from error
        finally:
            process.kill()  # whoever no longer listens, interrupted perhaps, waits no longer
            with suppress(BrokenPipeError), process:  # closing sends what was not taken
                pass

    def cancel(self) -> None:
        """Ends the process; harmless afterwards."""
        with self._lock:
            self.is_cancelled = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", f"from {__name__} import main; main()"]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        pipe = subprocess.PIPE
        with self._lock:
            self._process = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                env=os.environ | {"PYTHONPATH": path},
                # A notebook interrupts all its kernel's processes; this one works for no cell.
                process_group=0,
            )
            if self.is_cancelled:
                self._process.kill()
            return self._process


def parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Items in messages of a size that can be sent."""
    return (items[at : at + PART] for at in range(0, len(items), PART))


def _received() -> Iterator[Any]:
    with suppress(EOFError):
        while True:
            yield from pickle.load(sys.stdin.buffer)


def main() -> None:
    """The process: works on one task, with less claim to the processor than anything else."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent to it alone, too
    if hasattr(os, "nice"):
        os.nice(10)
    out = sys.stdout.buffer

    def send(kind: str, content: Any = None) -> None:
        pickle.dump((kind, content), out)
        out.flush()

    task: Task = pickle.load(sys.stdin.buffer)
    try:
        task.work(list(_received()), send)
    except VoxserveError as error:
        send("refused", str(error))
    send("end")
