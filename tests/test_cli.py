"""The `voxserve` command: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import wave
from functools import partial
from pathlib import Path

import pytest

from voxserve import cli
from voxserve.bench import check, decision
from voxserve.bench.tables import Figure, Results
from voxserve.commands import check as check_command
from voxserve.commands import lab, notebooks


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Runs a command that must end with code 2 and one clear line."""
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_alone_it_helps(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    assert "voxserve lab" in out
    assert all(name in out for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(capsys, name):
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: voxserve {name}" in capsys.readouterr().out


def test_version(capsys):
    assert run(capsys, "--version")[1].startswith("voxserve 0.")


def test_models_lists_the_bundled_one(capsys):
    assert "vox-tiny" in run(capsys, "models")[1]


def test_models_and_help_load_no_torch():
    code = (
        "import sys; from voxserve.cli import main;"
        "main(['models']); main([]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_say_writes_a_file(capsys, tmp_path):
    path = tmp_path / "x.wav"
    code, out, err = run(capsys, "say", "Hello there, my friend.", "-o", str(path))
    assert (code, out) == (0, "")
    assert "s of speech" in err
    with wave.open(str(path)) as file:
        assert file.getframerate() == 24_000
        assert file.getnframes() > 12_000


def test_say_reads_standard_input_and_shows_chunks(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello there, my friend.\n"))
    code, out, _ = run(capsys, "say", "--stream", "-")
    assert code == 0
    header, *lines = out.splitlines()
    assert "deadline s" in header
    assert len(lines) >= 2
    assert all(len(line.split()) == 7 for line in lines)


def test_say_pipes_a_wav(capsysbinary):
    assert cli.main(["say", "Hello there.", "-o", "-"]) == 0
    with wave.open(io.BytesIO(capsysbinary.readouterr().out)) as file:
        assert file.getnframes() > 0


def test_a_piped_wav_and_a_table_do_not_mix(capsysbinary):
    assert cli.main(["say", "--stream", "Hello there.", "-o", "-"]) == 0
    out, err = capsysbinary.readouterr()
    with wave.open(io.BytesIO(out)) as file:
        assert file.getnframes() > 0
    assert err.startswith(b"chunk  frames")


def test_what_say_refuses(capsys, tmp_path, monkeypatch):
    out = str(tmp_path / "x.wav")
    assert "did you mean 'vox-tiny'" in refused(
        capsys, "say", "Hi.", "-o", out, "--model", "voxtiny"
    )
    assert "no device" in refused(capsys, "say", "Hi.", "-o", out, "--device", "abacus")
    assert "empty" in refused(capsys, "say", "  ", "-o", out)
    assert "there is no folder" in refused(capsys, "say", "Hi.", "-o", str(tmp_path / "no" / "x"))
    assert "is a folder" in refused(capsys, "say", "Hi.", "-o", str(tmp_path))
    assert "voice" in refused(capsys, "say", "Hi.", "-o", out, "--voice", "nobody")
    mp3 = str(tmp_path / "x.mp3")
    assert "only .wav files are written" in refused(capsys, "say", "Hi.", "-o", mp3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("say", "Hi.", "--weights", ""), "--weights"),
        (("say", "Hi.", "-o", ""), "--output"),
        (("simulate", "--json="), "--json"),
        (("profile", "-o", ""), "--output"),
        (("bench", "--output="), "--output"),
    ],
)
def test_an_empty_option_is_neither_the_current_folder_nor_nothing(capsys, words, option):
    assert f"{option} is empty" in refused(capsys, *words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    "words",
    [
        ("say", "Hi.", "-o"),
        *(("simulate", "--seconds", "1", f"--{kind}") for kind in ("trace", "json")),
    ],
)
def test_a_full_disk_is_told_with_the_name_of_the_file(capsys, words):
    code, _, err = run(capsys, *words, "/dev/full")
    assert code == 2
    assert err.endswith("/dev/full: No space left on device\n")


def test_say_without_an_audio_device(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert "no audio output" in refused(capsys, "say", "Hi.", "--play")
    assert "no audio output" in refused(capsys, "say", "Hi.")


def test_an_interrupt_ends_a_say_at_once(tmp_path):
    """Ctrl-C while it speaks: code 130, one line, no file, nothing hangs."""
    words = [sys.executable, "-m", "voxserve", "say", "A sentence. " * 60, "--stream"]
    out = str(tmp_path / "x.wav")
    with subprocess.Popen(
        [*words, "-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the header
        process.stdout.readline()  # the first chunk
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.endswith("voxserve: interrupted\n")
    assert "Traceback" not in err
    assert not Path(out).exists()


def test_lab_refuses_a_busy_port(capsys, tmp_path):
    with socket.socket() as busy:
        busy.bind((lab.HOST, 0))
        busy.listen()
        port = busy.getsockname()[1]
        told = refused(capsys, "lab", str(tmp_path / "n"), "--port", str(port))
    assert f"port {port} cannot be used" in told
    assert "outside 1 to 65535" in refused(capsys, "lab", "--port", "99999")
    assert not (tmp_path / "n").exists()


def test_lab_opens_the_quickstart(capsys, monkeypatch, tmp_path):
    commands: list[list[str]] = []
    monkeypatch.setattr(lab, "_become", lambda command: commands.append(command) or 0)
    monkeypatch.setattr(lab, "copy_notebooks", lambda folder: notebooks.Copied())
    assert run(capsys, "lab", str(tmp_path), "--no-browser")[0] == 0
    (command,) = commands
    assert f"--ServerApp.root_dir={tmp_path}" in command
    assert "--LabApp.default_url=/lab/tree/00_quickstart.ipynb" in command
    assert "--no-browser" in command


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    (folder / "pictures").mkdir(parents=True)
    (folder / "00_quickstart.ipynb").write_text("first")
    (folder / "pictures" / "a.png").write_text("picture")
    return folder


def test_notebooks_are_copied_and_updated_while_unedited(tmp_path, shipped):
    folder = tmp_path / "mine"
    copied = notebooks.copy_notebooks(folder, shipped)
    assert copied.written == ["00_quickstart.ipynb", "pictures/a.png"]
    assert notebooks.copy_notebooks(folder, shipped).kept == copied.written
    (shipped / "00_quickstart.ipynb").write_text("second")
    assert notebooks.copy_notebooks(folder, shipped).written == ["00_quickstart.ipynb"]
    assert (folder / "00_quickstart.ipynb").read_text() == "second"


def test_an_edited_notebook_is_never_overwritten(tmp_path, shipped):
    folder = tmp_path / "mine"
    notebooks.copy_notebooks(folder, shipped)
    mine = folder / "00_quickstart.ipynb"
    mine.write_text("edited")
    assert "00_quickstart.ipynb" in notebooks.copy_notebooks(folder, shipped).kept
    assert not (folder / "00_quickstart.new.ipynb").exists()
    (shipped / "00_quickstart.ipynb").write_text("second")
    copied = notebooks.copy_notebooks(folder, shipped)
    assert copied.set_aside == [("00_quickstart.ipynb", "00_quickstart.new.ipynb")]
    assert mine.read_text() == "edited"
    aside = folder / "00_quickstart.new.ipynb"
    assert aside.read_text() == "second"
    (shipped / "00_quickstart.ipynb").write_text("third")
    notebooks.copy_notebooks(folder, shipped)
    assert aside.read_text() == "third"
    aside.write_text("edited, too")
    (shipped / "00_quickstart.ipynb").write_text("fourth")
    copied = notebooks.copy_notebooks(folder, shipped)
    assert copied.set_aside == [("00_quickstart.ipynb", "00_quickstart.new2.ipynb")]
    assert aside.read_text() == "edited, too"
    assert mine.read_text() == "edited"
    assert (folder / "00_quickstart.new2.ipynb").read_text() == "fourth"


def test_a_folder_with_notebooks_of_unknown_origin_is_respected(tmp_path, shipped):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "00_quickstart.ipynb").write_text("something else")
    (folder / notebooks.RECORD).write_text("not json")
    copied = notebooks.copy_notebooks(folder, shipped)
    assert copied.set_aside == [("00_quickstart.ipynb", "00_quickstart.new.ipynb")]
    assert json.loads((folder / notebooks.RECORD).read_text())


def test_an_unwritable_folder_is_told(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in refused(capsys, "lab", str(tmp_path / "file"))


def test_check_prints_a_table_and_writes_results(capsys, tmp_path, monkeypatch):
    quick = partial(decision.measure_decisions, 16, 50)
    monkeypatch.setattr("voxserve.bench.check.measure_decisions", lambda running, **_: quick())
    path = tmp_path / "results.json"
    code, out, _ = run(capsys, "check", "--only", "decision", "-o", str(path))
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 6
    assert all(f"| {row['figure']} |" in out for row in rows)
    assert code == int(any(row["must"] and row["value"] > row["must"] for row in rows))


@pytest.mark.parametrize(
    "words",
    [
        ("check", "-o"),
        ("profile", "-o"),
        *(("simulate", f"--{kind}") for kind in ("trace", "json", "html")),
    ],
)
def test_where_nothing_can_be_written_nothing_is_measured(capsys, tmp_path, words):
    assert "there is no folder" in refused(capsys, *words, str(tmp_path / "no" / "x.json"))
    assert "is a folder" in refused(capsys, *words, str(tmp_path))
    assert "files are written" in refused(capsys, *words, str(tmp_path / "x.wav"))


def test_the_parts_of_check_are_those_that_can_be_measured():
    assert check_command.PARTS == check.PARTS


@pytest.mark.parametrize(
    ("figure", "code"),
    [
        (Figure("speed", 2.0, "x", must=2.5, better="higher"), 1),
        (Figure("speed", 3.0, "x", must=2.5, aim=4.0, better="higher"), 0),
        (Figure("speed", 3.0, "x", aim=4.0, better="higher"), 0),
    ],
)
def test_check_ends_with_one_where_what_must_be_met_is_missed(capsys, monkeypatch, figure, code):
    results = Results("a machine", "2026-01-01", {}, {}, "voxserve check", (figure,))
    monkeypatch.setattr("voxserve.bench.check.check", lambda *_, **__: results)
    assert run(capsys, "check")[0] == code


@pytest.mark.parametrize(
    "words",
    [
        "simulate --seeds nan",
        "simulate --seeds -1",
        "simulate --seeds 1.5",
        "simulate --workload burst:0",
        "simulate --workload burst:99999999999",
        "plan --rate nan",
        "plan --rate -1",
        "bench --rates nan",
        "bench --rates inf",
        "bench --seconds inf",
        "bench --traces -3",
        "check --stream-seconds nan --only streams",
    ],
)
def test_numbers_that_make_no_sense_are_refused(capsys, words):
    refused(capsys, *words.split())


def test_a_workload_file_that_is_no_text_is_refused(capsys, tmp_path):
    path = tmp_path / "texts"
    path.write_bytes(b"one\xff\n")
    assert "UTF-8" in refused(capsys, "simulate", "--workload", f"file:{path}")


def test_input_that_is_no_text_is_refused(capsys, monkeypatch):
    undecodable = io.TextIOWrapper(io.BytesIO(b"one \xff"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", undecodable)
    assert "not utf-8 text" in refused(capsys, "say", "-o", "-")


@pytest.mark.parametrize(
    ("words", "closed", "told"),
    [("say", "<&-", "the text is empty"), ("say one -o -", ">&-", "standard output is closed")],
)
def test_closed_standard_streams_are_told(words, closed, told):
    line = f'exec "{sys.executable}" -m voxserve {words} {closed}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


def test_ctrl_c_while_the_commands_are_imported_is_no_traceback(capsys, monkeypatch):
    monkeypatch.setattr(cli, "build_parser", lambda: signal.raise_signal(signal.SIGINT))
    code, out, err = run(capsys, "models")
    assert (code, out, err) == (cli.INTERRUPTED, "", "voxserve: interrupted\n")
