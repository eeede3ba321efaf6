"""The JavaScript: its maths under node, and the joined modules as the browser gets them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from voxserve.viz import esm

NODE = shutil.which("node")
HERE = Path(__file__).parent


def _modules() -> dict[str, str]:
    names = ("timeline.js", "numbers.js", "worklet.js")
    return {name: esm.module(name) for name in names} | {"player.js": esm.player_module()}


@pytest.mark.parametrize("name", _modules())
def test_a_module_needs_nothing_beside_it(name: str) -> None:
    source = _modules()[name]
    assert 'from "./' not in source
    assert "__WORKLET__" not in source


@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.parametrize("name", _modules())
def test_a_joined_module_parses(name: str, tmp_path: Path) -> None:
    file = tmp_path / "module.mjs"
    file.write_text(_modules()[name], encoding="utf-8")
    checked = subprocess.run([str(NODE), "--check", file], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_maths_in_node() -> None:
    run = subprocess.run(
        [str(NODE), "--test", "--no-warnings", HERE / "static.test.mjs"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
