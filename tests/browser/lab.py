"""Starts JupyterLab in fresh directories and opens notebooks in a fresh headless Chromium."""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright

TOKEN = "test"
ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --enable-precise-memory-info "
    "--autoplay-policy=no-user-gesture-required --disable-background-timer-throttling "
    "--disable-renderer-backgrounding"
).split()
# No pop-ups; every cell is in the page, seen or not.
SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {
        "windowingMode": "none"
    },  # all cells are in the page
}
KERNEL_IDLE = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === "idle";
}"""

IN_KERNEL = """async ([code, expression]) => {
  const panel = [...window.jupyterapp.shell.widgets("main")].find((w) => w.sessionContext);
  const kernel = panel.sessionContext.session.kernel;
  const request = { code, user_expressions: { value: expression }, silent: false };
  return (await kernel.requestExecute({ ...request, store_history: false }).done).content;
}"""

# For a page's start: how many audio contexts it makes, and which.
COUNT_CONTEXTS = """
window.audioContexts = 0;
window.contexts = [];
const Real = window.AudioContext;
window.AudioContext = class extends Real {
  constructor(options) { super(options); window.audioContexts += 1; window.contexts.push(this); }
};
"""


def chromium() -> str | None:
    """Path of the system's browser, if there is one."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def jupyterlab(folder: Path, notebooks: Path) -> Iterator[int]:
    """Serves `notebooks` on a free port until the block ends; all state goes to `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dirs = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
    }
    env = os.environ | {name: str(folder / sub) for name, sub in dirs.items()}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    for plugin, settings in SETTINGS.items():
        file = folder / "settings" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser"]
    command += ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={notebooks}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(f"http://127.0.0.1:{port}/api?token={TOKEN}", server)
            yield port
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(url: str, server: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.2)):
        assert server.poll() is None, "JupyterLab ended before it answered; see server.log"
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"JupyterLab did not answer within {seconds} s")


def launch(playwright: Playwright, folder: Path, flags: Sequence[str] = ()) -> BrowserContext:
    """A new browser with a profile of its own, at the size of a small projector."""
    return playwright.chromium.launch_persistent_context(
        folder / "profile",
        executable_path=chromium(),
        args=[*FLAGS, *flags],
        headless=True,
        viewport={"width": 1280, "height": 720},
    )


def new_page(browser: BrowserContext) -> Page:
    """A new tab; what goes wrong in it is kept in `page.problems`."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.problems = problems  # type: ignore[attr-defined]
    return page


class Untouched:
    """A page that nobody has clicked: Playwright's own calls count as a user's gesture."""

    def __init__(self, page: Page, port: int, name: str) -> None:
        self.page = page
        self._session = page.context.new_cdp_session(page)
        page.goto(f"http://127.0.0.1:{port}/lab/tree/{name}?token={TOKEN}&reset")
        self.wait("document.querySelector('.jp-Notebook .jp-Cell') !== null")
        self.wait(f"({KERNEL_IDLE})()")

    def js(self, expression: str) -> Any:
        """An expression's value; promises are awaited."""
        reply = self._session.send(
            "Runtime.evaluate",
            {
                "expression": expression,
                "awaitPromise": True,
                "returnByValue": True,
                "userGesture": False,
            },
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def wait(self, expression: str, seconds: float = 90.0) -> None:
        """Until an expression is true."""
        end_s = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < end_s, f"not true within {seconds} s: {expression}"
            time.sleep(0.2)

    def kernel(self, expression: str, code: str = "") -> Any:
        """`evaluate` without a gesture."""
        arguments = json.dumps([code, f"__import__('json').dumps({expression})"])
        return _value(self.js(f"({IN_KERNEL})({arguments})"))

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        middle = f"""(() => {{ const r = document.querySelector({json.dumps(selector)})
          .getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"""
        x, y = self.js(middle)
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self._session.send("Input.dispatchMouseEvent", event)


def open_notebook(page: Page, port: int, name: str, *, theme: str = "Light") -> None:
    """Opens a notebook with an idle kernel, side bar closed."""
    page.goto(f"http://127.0.0.1:{port}/lab/tree/{name}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
    page.wait_for_function(KERNEL_IDLE, timeout=90_000)
    command(page, "application:toggle-left-area")
    command(page, "apputils:change-theme", {"theme": f"JupyterLab {theme}"})


def write_notebook(folder: Path, name: str, cells: Sequence[str]) -> str:
    """Writes a notebook of code cells and returns its file's name."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(made, folder / f"{name}.ipynb")
    return f"{name}.ipynb"


def open_workbench(page: Page, port: int, name: str) -> None:
    """Opens a notebook, runs its cells and waits for the workbench that the last one shows."""
    open_notebook(page, port, name)
    command(page, "notebook:run-all-cells")
    show_workbench(page)


@contextmanager
def workbench_page(name: str, cells: Sequence[str]) -> Iterator[Page]:
    """A page with the workbench of a notebook's cells, in a JupyterLab and browser of its own."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "notebooks").mkdir()
        write_notebook(folder / "notebooks", name, cells)
        with jupyterlab(folder, folder / "notebooks") as port, sync_playwright() as driver:
            page = new_page(launch(driver, folder))
            open_workbench(page, port, f"{name}.ipynb")
            yield page


def evaluate(page: Page, expression: str, code: str = "") -> Any:
    """Runs `code` in the open notebook's kernel and returns an expression's value."""
    return _value(page.evaluate(IN_KERNEL, [code, f"__import__('json').dumps({expression})"]))


def _value(reply: dict[str, Any]) -> Any:
    assert reply["status"] == "ok", reply
    value = reply["user_expressions"]["value"]
    assert value["status"] == "ok", value
    return json.loads(ast.literal_eval(value["data"]["text/plain"]))


def until(page: Page, expression: str, seconds: float = 30.0) -> Any:
    """Waits for a kernel expression to become true and returns its value."""
    end_s = time.monotonic() + seconds
    while not (value := evaluate(page, expression)):
        assert time.monotonic() < end_s, f"not true within {seconds} s: {expression}"
        page.wait_for_timeout(200)
    return value


def command(page: Page, name: str, args: dict[str, Any] | None = None) -> None:
    """Runs a JupyterLab command without waiting for its result."""
    page.evaluate(
        "([name, args]) => { window.jupyterapp.commands.execute(name, args); }", [name, args or {}]
    )


def show_workbench(page: Page) -> None:
    """Waits for the workbench to be drawn and scrolls it to the top."""
    page.wait_for_selector(".vs-timeline canvas", timeout=60_000)
    page.wait_for_selector(".vs-tile", timeout=20_000)
    page.evaluate("document.querySelector('.vs-workbench').scrollIntoView()")


def slider(page: Page, label: str) -> Any:
    """The handle of a slider of the workbench, by its label."""
    return page.locator(f".vs-area-controls .widget-hslider:has-text('{label}') .noUi-handle")
