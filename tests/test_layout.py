"""The rooms' import arrows, and what importing them must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "voxserve"
_THIRD_PARTY_FREE = {"core", "sched", "sim"}  # the standard library and numpy only

# Room -> rooms it may import. `models.base` and the like name one module of a room.
ARROWS: dict[str, set[str]] = {
    "core": set(),
    "sched": {"core"},
    "sim": {"core", "sched"},
    "kernels": set(),
    "models": {"core", "kernels"},
    "runtime": {"core", "kernels", "models.base", "models.request"},
    "engine": {"core", "sched", "sim", "runtime", "models"},
    "server": {"core", "engine"},
    # Planning a placement is asking the decider, without a device to run on.
    "bench": {"core", "sim", "engine", "runtime", "models", "sched.placement"},
    "viz": {"core", "sim"},
}
FORBIDDEN = {
    "core": {"torch", "threading", "time", "plotly", "ipywidgets", "anywidget"},
    "sched": {"torch", "threading", "time", "plotly", "ipywidgets", "anywidget"},
    "sim": {"torch", "threading", "time", "plotly", "ipywidgets", "anywidget"},
    "viz": {"torch"},
}


def _imports(path: Path) -> set[str]:
    """Every module a file imports, at whatever depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def _allowed(module: str, room: str) -> bool:
    parts = module.split(".")
    if len(parts) < 2 or parts[1] == room:
        return True
    arrows = ARROWS[room]
    return parts[1] in arrows or (len(parts) > 2 and f"{parts[1]}.{parts[2]}" in arrows)


@pytest.mark.parametrize("room", sorted(ARROWS))
def test_rooms_import_only_along_the_arrows(room: str) -> None:
    for path in _files(room):
        ours = {m for m in _imports(path) if m == "voxserve" or m.startswith("voxserve.")}
        rooms = {m for m in ours if m.count(".") >= 1}
        # `from voxserve.models import base` names the room and the module: the module decides.
        rooms = {m for m in rooms if not any(o.startswith(m + ".") for o in rooms)}
        wrong = sorted(m for m in rooms if not _allowed(m, room))
        assert wrong == [], f"{path.relative_to(ROOT)} imports {', '.join(wrong)}"


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_rooms_leave_heavy_modules_and_clocks_alone(room: str) -> None:
    for path in _files(room):
        roots = {module.split(".")[0] for module in _imports(path)}
        wrong = sorted(roots & FORBIDDEN[room])
        assert wrong == [], f"{path.relative_to(ROOT)} imports {', '.join(wrong)}"


@pytest.mark.parametrize("room", sorted(_THIRD_PARTY_FREE))
def test_core_rooms_need_only_numpy(room: str) -> None:
    known = sys.stdlib_module_names | {"numpy", "voxserve"}
    for path in _files(room):
        wrong = {m.split(".")[0] for m in _imports(path)} - known
        assert wrong == set(), f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("room", sorted(ARROWS))
def test_room_init_files_export_nothing(room: str) -> None:
    path = PACKAGE / room / "__init__.py"
    if path.exists():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), f"{path}: more than a docstring"


def _loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh process after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def _import_all(room: str) -> str:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in _files(room)
    ]
    return "import " + ", ".join(names)


def test_importing_core_sched_and_sim_loads_no_torch() -> None:
    statement = "\n".join(_import_all(room) for room in sorted(_THIRD_PARTY_FREE))
    assert not _loaded_by(statement) & {"torch", "plotly", "ipywidgets", "anywidget", "IPython"}


def test_importing_voxserve_stays_light() -> None:
    loaded = _loaded_by("import voxserve")
    assert not loaded & {"torch", "plotly", "ipywidgets", "anywidget", "IPython", "jupyterlab"}
