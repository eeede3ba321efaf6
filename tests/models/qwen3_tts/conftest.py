"""The two models that the goldens were made of."""

from __future__ import annotations

import pytest
from models.qwen3_tts.qwen_support import CHECKPOINT, identity_model

from voxserve.models import registry
from voxserve.models.qwen3_tts.model import Qwen3TTS


@pytest.fixture(scope="session")
def tiny() -> Qwen3TTS:
    """The shipped tiny checkpoint, loaded as a user would."""
    model = registry.load("qwen3-tts-1.7b", "cpu", str(CHECKPOINT))
    assert isinstance(model, Qwen3TTS)
    return model


@pytest.fixture(scope="session")
def both(tiny: Qwen3TTS) -> dict[str, Qwen3TTS]:
    """Both models by the name of their goldens."""
    return {"tiny": tiny, "identity": identity_model()}
