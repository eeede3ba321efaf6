"""The README's commands and code run as written."""

import re
import shlex
import subprocess
import sys
import wave
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def terminal_lines() -> list[str]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("voxserve ")]


def test_readme_has_the_two_commands():
    assert "pip install . && voxserve lab\n" in blocks("bash")
    assert 'pip install -e ".[test]" && pytest\n' in blocks("bash")


def test_ci_finds_the_test_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.search(r"command=\$\((sed .*?)\)\n", script)
    assert found is not None
    printed = subprocess.run(
        ["bash", "-c", found[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == 'pip install -e ".[test]" && pytest'


@pytest.mark.parametrize("line", terminal_lines())
def test_terminal_line_runs(line: str, tmp_path: Path):
    words = shlex.split(line, comments=True)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "voxserve", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if "-o" in words:
        with wave.open(str(tmp_path / words[words.index("-o") + 1])) as file:
            assert file.getnframes() > file.getframerate()  # more than a second of speech


@pytest.mark.parametrize("code", blocks("python"))
def test_python_block_runs(code: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
