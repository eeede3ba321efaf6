"""Loading a model by name: what is refused before any weights are looked for."""

from __future__ import annotations

import pytest

from voxserve.core.errors import InvalidInput
from voxserve.models import registry


@pytest.mark.parametrize("weights", ["", " "])
def test_empty_weights_are_not_the_current_folder(weights: str) -> None:
    with pytest.raises(InvalidInput, match="weights is empty"):
        registry.load("vox-tiny", "cpu", weights)
