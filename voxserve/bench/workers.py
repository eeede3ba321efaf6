"""Worker processes for simulations: each runs one call at a time and ends with its pool.

Own processes instead of `multiprocessing`: nothing is forked from a process with threads, and the
user's script or notebook is not run again in each worker.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

from voxserve.core.errors import EngineFailed, InvalidInput
from voxserve.sim.api import simulate
from voxserve.sim.simulator import SimulationResult


class Pool:
    """Runs `simulate` calls in parallel processes; a context manager that leaves none behind.

    Args:
        workers: Processes; one per core when None.

    Raises:
        InvalidInput: Fewer than one process.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InvalidInput(f"{workers} workers: at least one process is needed")
        self.workers = workers or os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="voxserve-pool")
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []

    def submit(self, call: dict[str, Any]) -> Future[SimulationResult]:
        """Starts `simulate(**call)` as soon as a worker is free.

        Raises:
            InvalidInput: An argument that cannot travel to another process.
        """
        try:
            packed = pickle.dumps(call)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidInput(
                f"an argument cannot be sent to worker processes ({error}); use workers=1"
            ) from None
        return self._threads.submit(self._run, packed)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            for process in self._started:
                process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._started:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()  # a worker without input ends
            process.wait()

    def _run(self, packed: bytes) -> SimulationResult:
        worker = self._take()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            _write(worker.stdin, packed)
            is_done, value = pickle.loads(_read(worker.stdout))
        except (OSError, EOFError) as error:
            raise EngineFailed(f"a simulation worker ended: {error!r}") from None
        self._idle.put(worker)
        if is_done:
            return value
        raise value

    def _take(self) -> subprocess.Popen[bytes]:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            worker = subprocess.Popen(
                [sys.executable, "-m", "voxserve.bench.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                process_group=0,  # Ctrl-C is for us alone: the pool ends its workers
            )
            self._started.append(worker)
            return worker


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    length = pipe.read(8)
    if len(length) < 8:
        raise EOFError("its pipe was closed")
    return pipe.read(int.from_bytes(length, "little"))


def serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answers calls until its input ends: (True, result) or (False, error)."""
    while True:
        try:
            call = pickle.loads(_read(calls))
        except EOFError:
            return
        try:
            answer = (True, simulate(**call))
        except Exception as error:  # border: the caller's process raises it
            answer = (False, error)
        try:
            _write(answers, pickle.dumps(answer))
        except BrokenPipeError:  # whoever asked has gone
            return


if __name__ == "__main__":
    # NOTE: this file runs as "__main__" here, so what it pickles must live in other modules.
    serve(sys.stdin.buffer, sys.stdout.buffer)
