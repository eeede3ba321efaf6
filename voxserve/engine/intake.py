"""From what a user typed to a submitted request; runs on user threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from voxserve.core.clock import Clock
from voxserve.core.errors import EngineStopped, InvalidInput
from voxserve.core.request import RequestSpec
from voxserve.core.workload import Utterance
from voxserve.engine.requests import Sink
from voxserve.engine.sentences import text_of
from voxserve.engine.service import Service
from voxserve.engine.streamed_text import StreamedText, pieces_of
from voxserve.models.request import PreparedRequest, Sampling, SpeechOptions

if TYPE_CHECKING:
    from voxserve.engine.build import Preparer
    from voxserve.models.base import SpeechModel

PrepareLoad = Callable[[Utterance, int], Any]  # utterance, seed -> prepared request
COLLECTED = "the model takes whole texts, so the pieces were collected before speaking"


class Intake:
    """Prepares and submits requests for one running service.

    Args:
        model: Its `preprocess` is called, from any thread.
        service: Takes the requests.
        ids: Numbers requests over the engine's whole life.
        clock: Engine time.
        prepare_load: Makes a request of a workload's lengths alone, where a device can.
        speaks_ahead: Preparing speaks the text already: a request arrives when it is prepared.
    """

    def __init__(
        self,
        model: Preparer,
        service: Service,
        ids: itertools.count[int],
        clock: Clock,
        prepare_load: PrepareLoad | None = None,
        speaks_ahead: bool = False,
    ) -> None:
        self._model: Preparer | None = model
        self.speaks_ahead = speaks_ahead
        self.prepare_load = prepare_load
        self.service = service
        self.clock = clock
        self._ids = ids

    @property
    def model(self) -> Preparer:
        """Prepares the requests.

        Raises:
            EngineStopped, EngineFailed: The engine no longer serves.
        """
        model = self._model
        if model is None:  # a stream that was made before the end
            self.service.check_open()
            raise EngineStopped("the engine was stopped")
        return model

    def prepare(self, text: str | Iterable[str], options: dict[str, Any]) -> PreparedRequest:
        """Checks the options and turns the text into prompt pieces.

        Raises:
            InvalidInput: Nothing to say, an unknown option, voice or language, or too long.
        """
        collected = not isinstance(text, str)
        if collected:
            text = collect(text)
        request = self.model.preprocess(text, speech_options(options))
        self._check_length(request)
        return replace(request, notes=(*request.notes, COLLECTED)) if collected else request

    def stream_text(self, text: object) -> StreamedText | None:
        """Text in pieces, where the model can speak it as it arrives; None otherwise."""
        if isinstance(text, str) or not self.model.info.accepts_streamed_text:
            return None
        return StreamedText(cast("SpeechModel", self.model), cast("Iterable[str]", text))

    def prepare_streamed(self, text: StreamedText, options: dict[str, Any]) -> PreparedRequest:
        """The request of a streamed text, once its first token is there.

        A request that nothing else limits ends where the device's slots do.

        Raises:
            InvalidInput: Nothing to say, an unknown option, voice or language.
        """
        request = text.begin(speech_options(options))
        if not request.is_text_complete:
            limit = self.service.prepared.max_request_frames
            request = replace(request, max_frames=min(request.max_frames, limit))
        self._check_length(request)
        return request

    def prepare_utterance(self, utterance: Utterance, seed: int) -> PreparedRequest:
        """The request of a workload's utterance.

        Raises:
            InvalidInput: The model cannot speak a text of this length.
        """
        if self.prepare_load is not None:
            request = self.prepare_load(utterance, seed)
            self._check_length(request)
            return request
        return self.prepare(text_of(utterance, seed), {"seed": seed})

    def submit(
        self,
        request: PreparedRequest,
        sink: Sink | None,
        arrival_s: float,
        *,
        has_listener: bool = True,
        request_id: int | None = None,
    ) -> int:
        """Hands the request to the service and returns its id.

        Raises:
            EngineStopped, EngineFailed: The engine no longer serves.
        """
        settings = self.service.settings
        # Nobody waits for the first sound of a file: the largest chunks are the cheapest.
        ramp = settings.chunk_ramp if has_listener else settings.chunk_ramp[-1:]
        spec = RequestSpec(
            request_id=self.new_id() if request_id is None else request_id,
            arrival_s=arrival_s,
            prompt_tokens=tuple(piece.num_tokens for piece in request.pieces),
            max_frames=request.max_frames,
            chunk_ramp=ramp,
            has_listener=has_listener,
            ttfa_target_s=settings.ttfa_target_s,
            text_complete=request.is_text_complete,
        )
        self.service.submit(spec, request, sink)
        return spec.request_id

    def new_id(self) -> int:
        """A request id nobody else has."""
        return next(self._ids)

    def close(self) -> None:
        """Forgets the model, so that a stream kept in a notebook's history holds no weights."""
        self._model = None
        self.prepare_load = None

    def _check_length(self, request: PreparedRequest) -> None:
        limit = self.service.prepared.max_request_frames
        if request.max_frames > limit:
            seconds = limit * self.model.info.frame_s
            raise InvalidInput(
                f"the text needs up to {request.max_frames} frames; a request holds {limit} "
                f"({seconds:.0f} s of speech): split it into several requests"
            )


def collect(text: Iterable[str]) -> str:
    """Joins pieces of text as they are (a piece brings its own spaces).

    Raises:
        InvalidInput: Not text.
    """
    pieces = list(pieces_of(text))
    for piece in pieces:
        if not isinstance(piece, str):
            raise InvalidInput(f"a piece of the text is {piece!r}, not a string")
    return "".join(pieces)


def speech_options(options: dict[str, Any]) -> SpeechOptions:
    """Options by name, those of `Sampling` included, as the model takes them.

    Raises:
        InvalidInput: An unknown name (lists what there is) or a value out of bounds.
    """
    sampling_names = {field.name for field in fields(Sampling)}
    names = {field.name for field in fields(SpeechOptions)}
    unknown = options.keys() - names - sampling_names
    if unknown:
        known = ", ".join(sorted((names | sampling_names) - {"sampling"}))
        raise InvalidInput(f"no option {sorted(unknown)[0]!r}; there are {known}")
    sampling = {name: options[name] for name in options.keys() & sampling_names}
    rest = {name: options[name] for name in options.keys() & names}
    if sampling:
        rest["sampling"] = Sampling(**sampling)
    return SpeechOptions(**rest)
