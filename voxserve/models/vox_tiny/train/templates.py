"""Texts of our own: everyday requests, short answers, and everything that is written with figures.

What novels and dictionaries lack: one to three words, names, times, money, units, abbreviations.
A typed text passes the model's own normaliser before it is spoken (corpus.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_NAMES = (
    "James Mary John Linda Robert Susan Michael Karen David Lisa Emma Noah Olivia Liam Sophia "
    "Lucas Mia Ethan Anna Peter Maria Kevin Laura Daniel Rachel Thomas Julia Henry Alice George "
    "Helen Oscar Nina Paul Sarah Victor Clara Simon Grace Felix Ahmed Priya Wei Yuki Carlos Elena "
    "Johnson Smith Brown Miller Davis Garcia Wilson Anderson Taylor Moore Jackson Martin Lee Clark"
).split()
_PLACES = (
    "London Paris Berlin Tokyo Boston Chicago Madrid Rome Sydney Toronto Dublin Vienna Oslo "
    "Seattle Denver Austin Lisbon Prague Cairo Delhi Singapore Amsterdam Stockholm Helsinki "
    "Montreal Texas California Brazil Canada Germany India Japan Kenya Mexico Norway Spain"
).split()
_THINGS = (
    "model server computer phone kitchen garden window train ticket letter coffee teacher doctor "
    "river mountain forest camera keyboard battery message meeting report picture story music "
    "concert movie hotel airport bridge market bakery library museum school hospital office engine "
    "audio speech voice signal stream token frame codec decoder buffer batch request notebook "
    "package queue sample speaker microphone headphone recording playlist storm umbrella jacket "
    "sweater bicycle bus taxi road street corner house apartment door key lamp table chair bed "
    "dinner breakfast lunch sandwich soup salad apple orange banana lemon bread butter cheese "
    "chicken fish pasta pizza cake cookie glass plate spoon knife cat dog bird horse rabbit tiger "
    "lion elephant monkey whale dolphin shark spider insect butterfly flower tree leaf stone beach "
    "ocean island lake city village country planet star moon galaxy rocket satellite telescope "
    "laboratory scientist engineer artist painter singer dancer writer poet lawyer judge soldier "
    "captain pilot driver farmer baker nurse student child baby brother sister mother father uncle "
    "aunt cousin neighbor friend password folder file program error network screen button website "
    "database algorithm schedule deadline account invoice contract appointment passport"
).split()
_KINDS = (
    "red green blue yellow quiet loud fast slow small large new old bright dark warm cold simple "
    "strange beautiful clever careful broken empty heavy gentle fresh famous modern ancient "
    "expensive cheap comfortable dangerous delicious difficult easy enormous excellent friendly "
    "funny healthy huge important interesting lazy lucky nervous perfect polite popular powerful "
    "quick rare serious sharp silent smooth soft special strong sweet terrible tiny ugly useful "
    "valuable weak wild wonderful young"
).split()
_DONE = (
    "found bought sold fixed broke opened closed watched painted carried moved cleaned described "
    "explained ignored remembered followed tested measured noticed borrowed delivered designed "
    "discovered enjoyed finished improved invented offered ordered planned prepared protected "
    "received repaired replaced returned saved shared showed studied touched visited wanted"
).split()
_WAYS = (
    "quickly slowly carefully quietly suddenly finally happily politely rarely often usually "
    "yesterday today tonight tomorrow again already together outside downstairs nearby"
).split()
_SHORT = (
    "yes|no|okay|hello|hi|hey|thanks|sorry|please|stop|wait|go|now|why|how|what|who|when|where|"
    "never|always|maybe|perhaps|sure|right|left|good|great|fine|done|ready|help|listen|look|well|"
    "really|exactly|indeed|of course|not yet|not now|not today|come in|go on|go away|get up|"
    "sit down|stand up|slow down|hurry up|watch out|thank you|thanks a lot|good morning|"
    "good night|good evening|good luck|good job|good idea|well done|no way|no problem|no thanks|"
    "yes please|i agree|i know|i see|i think so|i hope so|i do not know|me too|see you|"
    "see you soon|see you later|take care|never mind|excuse me|pardon me|one moment|hold on|"
    "just a second|"
    "let me see|that is all|that is right|that is wrong|so what|what now|who knows|how much|"
    "how many|how far|how long|which one|this one|that one|all right|at last|right here|over there|"
    "up there|it works|it failed|try again|open it|close it|turn left|turn right|keep going|"
    "be careful|calm down|cheers|congratulations|welcome|welcome back|goodbye|bye|happy birthday"
).split("|")
_UNITS = "km kg m cm mph km/h lbs GB MB min hrs °C °F % ft oz".split()
_INITIALS = (
    "NASA FBI USA UK EU GPU CPU API PDF URL HTML USB DNA ATM CEO PhD TV ID FAQ GPS LED SMS UN NATO"
).split()
_STREETS = "Main Park Oak Maple Washington Lake Hill Church Elm Pine".split()
_PUNCTUATION = (".", ".", ".", "!", "?")


class TemplateWriter:
    """Writes random texts from a fixed stock of sentence forms."""

    def __init__(self, rng: random.Random) -> None:
        """Keeps the generator that all choices come from."""
        self._rng = rng
        self._forms: dict[str, list[Callable[[], str]]] = {
            "everyday": self._everyday_forms(),
            "figures": self._figure_forms(),
        }

    def write(self, kind: str, count: int) -> Iterator[str]:
        """Texts of a kind, "everyday" or "figures"."""
        for _ in range(count):
            yield self._rng.choice(self._forms[kind])()

    def short(self, words: Sequence[str], count: int) -> Iterator[str]:
        """One to three words: set phrases, names, plain words."""
        for _ in range(count):
            phrase = self._short_phrase(words)
            yield phrase[0].upper() + phrase[1:] + self._rng.choice(_PUNCTUATION)

    def _short_phrase(self, words: Sequence[str]) -> str:
        pick = self._pick
        return self._rng.choices(
            (
                lambda: pick(_SHORT),
                lambda: pick(words),
                lambda: pick((_NAMES, _PLACES, _DAYS, _MONTHS)[self._rng.randrange(4)]),
                lambda: f"{pick(_SHORT)}, {pick(_NAMES)}",
                lambda: f"the {pick(_KINDS)} {pick(_THINGS)}",
                lambda: f"{pick(words)} {pick(words)}",
                lambda: f"{pick(_KINDS)} {pick(_THINGS)}",
                lambda: f"{pick(words)}, {pick(words)}, {pick(words)}",
                lambda: str(self._number(100)),
            ),
            (5, 8, 3, 3, 2, 3, 2, 2, 1),
        )[0]()

    def _pick(self, options: Sequence[str]) -> str:
        return self._rng.choice(options)

    def _number(self, below: int) -> int:
        return self._rng.randrange(1, below)

    def _everyday_forms(self) -> list[Callable[[], str]]:
        p = self._pick
        return [
            lambda: f"{p(_NAMES)} {p(_DONE)} the {p(_KINDS)} {p(_THINGS)} {p(_WAYS)}.",
            lambda: f"Good morning, {p(_NAMES)}, how are you this {p(_DAYS)}?",
            lambda: f"The {p(_THINGS)} near the {p(_THINGS)} is {p(_KINDS)} and {p(_KINDS)}.",
            lambda: (
                f"We will meet in {p(_PLACES)} on {p(_DAYS)}, or at the latest in {p(_MONTHS)}."
            ),
            lambda: f"Can you show me the {p(_KINDS)} {p(_THINGS)}, please?",
            lambda: f"I think the {p(_THINGS)} should be {p(_KINDS)}, but the {p(_THINGS)} is not.",
            lambda: f"Hello {p(_NAMES)}, this is {p(_NAMES)} from {p(_PLACES)}.",
            lambda: f"Why did {p(_NAMES)} leave the {p(_THINGS)} at the {p(_THINGS)}?",
            lambda: f"My {p(_THINGS)} {p(_DONE)} that {p(_KINDS)} {p(_THINGS)} in {p(_PLACES)}.",
            lambda: f"Please turn off the {p(_THINGS)} before {p(_DAYS)}!",
            lambda: f"If you open the {p(_THINGS)}, {p(_NAMES)} will be {p(_KINDS)}.",
            lambda: f"{p(_NAMES)} said that {p(_NAMES)} {p(_DONE)} {p(_KINDS)} things {p(_WAYS)}.",
            lambda: f"Do not forget the {p(_THINGS)}, the {p(_THINGS)}, or the {p(_THINGS)}.",
            lambda: f"The {p(_KINDS)} {p(_THINGS)} works {p(_WAYS)}; the {p(_KINDS)} one does not.",
            lambda: f"Is this the {p(_KINDS)} {p(_THINGS)} you {p(_DONE)} {p(_WAYS)}?",
            lambda: f"Let me tell you about the {p(_THINGS)}: it is {p(_KINDS)}.",
            lambda: f"Your {p(_THINGS)} is ready, {p(_NAMES)}.",
        ]

    def _figure_forms(self) -> list[Callable[[], str]]:
        p, n = self._pick, self._number
        return [
            lambda: f"It is {n(13)}:{n(60):02d} {p(('a.m.', 'p.m.'))} on {p(_DAYS)}.",
            lambda: f"The meeting on {p(_MONTHS)} {n(29)}, {1900 + n(130)} starts at {n(13)} pm.",
            lambda: f"The total is ${n(2000)}.{n(100):02d} for {n(40)} {p(_THINGS)}s.",
            lambda: f"There are {n(1000)} tickets left, and {n(100)} people are waiting.",
            lambda: f"The {p(_THINGS)} weighs {n(90)}.{n(10)} {p(_UNITS)}.",
            lambda: f"It takes {n(60)} min to drive {n(200)} {p(('km', 'miles'))} to {p(_PLACES)}.",
            lambda: f"Dr. {p(_NAMES)} lives at {n(999)} {p(_STREETS)} St. in {p(_PLACES)}.",
            lambda: f"Mr. and Mrs. {p(_NAMES)} {p(_DONE)} {n(50)}% of the {p(_THINGS)}s.",
            lambda: f"Call {n(900) + 99}-{n(9000) + 999} and ask for {p(_NAMES)}.",
            lambda: (
                f"The {p(_INITIALS)} {p(_DONE)} the {p(_KINDS)} {p(_THINGS)} in {1950 + n(80)}."
            ),
            lambda: f"Version {n(12)}.{n(20)} needs {n(64)} GB of memory and an {p(_INITIALS)}.",
            lambda: f"{n(100)}, {n(100)}, {n(100)}, {n(100)}, {n(100)}.",
            lambda: f"Room {n(900)} is on the {n(20)}th floor, next to the {p(_INITIALS)} office.",
            lambda: f"In {1700 + n(330)} the city had {n(900)},{n(1000):03d} inhabitants.",
            lambda: f"{p(_NAMES)} scored {n(120)} to {n(120)} against {p(_PLACES)}.",
            lambda: f"Chapter {n(40)} begins on page {n(600)}.",
            lambda: f"The temperature in {p(_PLACES)} is {n(40)} degrees, {n(30)} below normal.",
            lambda: f"That costs {n(1000)} dollars, i.e. {n(1000)} euros, etc.",
            lambda: (
                f"Take {n(9)}/{n(9) + 1} of the {p(_THINGS)} and {n(10)} x {n(10)} of the rest."
            ),
        ]
