"""The error tree: drawn as it is, all of it reachable for users."""

from __future__ import annotations

import inspect
import re

import voxserve
from voxserve.core import errors
from voxserve.core.errors import VoxserveError


def _errors() -> dict[str, type[VoxserveError]]:
    return {
        name: item
        for name, item in vars(errors).items()
        if inspect.isclass(item) and issubclass(item, VoxserveError)
    }


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^([│├└─ ]*)(\w+)", errors.__doc__ or "", re.MULTILINE)
    drawn = drawn[[name for _, name in drawn].index("VoxserveError") :]
    assert {name for _, name in drawn} == set(_errors())
    above: dict[int, str] = {}
    for indent, name in drawn:
        depth = len(indent) // 4
        above[depth] = name
        if depth:
            assert _errors()[name].__bases__[0].__name__ == above[depth - 1], name


def test_every_error_can_be_caught_by_its_public_name() -> None:
    for name, error in _errors().items():
        assert getattr(voxserve, name) is error
        assert name in voxserve.__all__


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    assert [name for name in voxserve.__all__ if not hasattr(voxserve, name)] == []
    assert set(voxserve.__all__) <= set(dir(voxserve))
