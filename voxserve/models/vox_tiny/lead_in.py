"""The words and codes that stand before every piece, so that its first words are never missed.

The model was trained on sentences of three words and more and often fails on "No." or "Hello."
alone. Said after another sentence it reads them well. So a prompt begins with a short sentence
whose audio is given, not made: its frames are rows of the prompt, up to the silence after it. The
listener hears only what follows. `tests/golden/make_vox_tiny.py` shows how the codes were drawn.
"""

from __future__ import annotations

LEAD_IN_TEXT = "all right. "
LEAD_IN_CODES = (
    (687, 568, 225, 393, 424, 593, 74, 733),
    (687, 323, 990, 16, 816, 183, 535, 557),
    (519, 478, 534, 725, 32, 552, 411, 698),
    (841, 154, 203, 745, 42, 880, 493, 989),
    (918, 399, 423, 258, 572, 37, 435, 946),
    (381, 239, 299, 502, 779, 488, 1019, 326),
    (756, 764, 829, 472, 328, 492, 157, 446),
    (659, 55, 986, 225, 508, 634, 486, 569),
    (710, 439, 250, 149, 645, 800, 92, 463),
    (751, 196, 733, 1005, 777, 483, 382, 409),
    (1011, 269, 334, 238, 367, 63, 128, 502),
)
