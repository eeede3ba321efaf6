"""The words and codes that stand before every piece, so that its first words are never missed.

The model was trained on sentences of three words and more and often fails on "No." or "Hello."
alone. Said after another sentence it reads them well. So a prompt begins with a short sentence
whose audio is given, not made: its frames are rows of the prompt, up to the silence after it. The
listener hears only what follows. `tests/golden/make_vox_tiny.py` shows how the codes were drawn.
"""

from __future__ import annotations

LEAD_IN_TEXT = "i will read it. "
LEAD_IN_CODES = (
    (687, 568, 225, 393, 424, 593, 74, 733),
    (687, 323, 990, 16, 816, 183, 535, 557),
    (328, 769, 96, 342, 492, 936, 796, 1002),
    (796, 326, 867, 398, 179, 268, 162, 544),
    (994, 931, 558, 596, 434, 11, 594, 1014),
    (929, 402, 201, 474, 704, 456, 916, 481),
    (22, 436, 314, 339, 337, 331, 62, 489),
    (684, 759, 903, 440, 110, 605, 470, 69),
    (260, 131, 383, 440, 209, 389, 984, 723),
    (275, 238, 66, 662, 816, 728, 895, 289),
    (412, 932, 654, 343, 637, 825, 888, 459),
    (901, 799, 583, 432, 247, 507, 853, 581),
)
