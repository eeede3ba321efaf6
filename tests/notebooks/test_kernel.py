"""The engine in a real notebook kernel: awaiting, interrupting, running a cell again, deleting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import AsyncKernelManager

pytestmark = pytest.mark.notebook

ROOT = Path(__file__).resolve().parents[2]
SETUP = """
import threading, voxserve
engine = voxserve.Engine("vox-tiny")
LONG = "A long sentence that goes on and on. " * 30
def threads():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("voxserve"))
"""


class Kernel:
    """A running kernel that executes cells and can be interrupted, on an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._manager = AsyncKernelManager()
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
        await self._manager.start_kernel(env=env)
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=60)

    def run(self, cell: str, interrupt_on: str | None = None) -> str:
        """What a cell printed, showed or raised; interrupts it once it printed `interrupt_on`."""
        return self._loop.run_until_complete(self._run(cell, interrupt_on))

    async def _run(self, cell: str, interrupt_on: str | None) -> str:
        request_id = self._client.execute(cell)
        told = ""
        while True:
            message = await self._client.get_iopub_msg(timeout=120)
            content = message["content"]
            if message["parent_header"].get("msg_id") != request_id:
                continue
            if message["msg_type"] == "stream":
                told += content["text"]
                if interrupt_on is not None and interrupt_on in told:
                    interrupt_on = None
                    await asyncio.sleep(0.2)
                    await self._manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                told += content["ename"]
            elif message["msg_type"] == "execute_result":
                told += " ".join(content["data"])
            elif content.get("execution_state") == "idle":
                return told

    def close(self) -> None:
        """Ends the kernel and everything that talked to it."""
        self._client.stop_channels()
        self._loop.run_until_complete(self._manager.shutdown_kernel(now=True))
        self._manager.context.destroy()
        self._loop.close()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    try:
        assert kernel.run(SETUP) == ""
        yield kernel
    finally:
        kernel.close()


def test_a_result_shows_a_player(kernel):
    assert "text/html" in kernel.run("engine.say('Hello there, my friend.')")


def test_await_and_async_for_work_in_the_kernels_loop(kernel):
    assert kernel.run("print((await engine.asay('Hello there.')).finish_reason)") == "end\n"
    cell = "heard = [c async for c in engine.astream('Hello there.')]\nprint(len(heard) > 1)"
    assert kernel.run(cell) == "True\n"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("print('go')\nengine.say(LONG)", "KeyboardInterrupt"),
        ("print('go')\nasync for c in engine.astream(LONG): pass", "CancelledError"),
    ],
)
def test_an_interrupt_cancels_and_the_engine_lives(kernel, cell, error):
    before = int(kernel.run("print(engine.stats().cancelled)"))
    assert error in kernel.run(cell, interrupt_on="go")
    told = kernel.run("print(engine.wait(20), engine.is_running, engine.stats().cancelled)")
    assert told == f"True True {before + 1}\n"


def test_running_the_cell_again_keeps_one_engine(kernel):
    assert kernel.run("print(engine is voxserve.Engine('vox-tiny'), len(threads()))") == "True 4\n"
    told = kernel.run(
        "old, engine = engine, voxserve.Engine('vox-tiny', urgency_margin_s=0.2)\n"
        "print(old.is_running, engine.is_running, len(threads()))"
    )
    assert told == "False True 4\n"


def test_deleting_leaves_no_thread(kernel):
    kernel.run("del engine\n_ = None")
    assert kernel.run("print(threads(), voxserve.engines())") == "[] {}\n"
