"""The words and codes that stand before every piece, so that its first words are never missed.

The model was trained on sentences of three words and more; "No." or "Hello." alone come out wrong
more often than not, but said after another sentence they are read well. So a prompt begins with a
short sentence whose audio is given, not made, up to the first frame of the silence after it (one
frame later, the next word's beginning is in the codes). The listener hears only what follows.
The codes are what the model itself says to "listen to me. the answer is yes." with seed 1.
"""

from __future__ import annotations

LEAD_IN_TEXT = "listen to me. "
LEAD_IN_CODES = (
    (687, 568, 225, 393, 424, 593, 74, 733),
    (687, 323, 818, 36, 291, 513, 51, 693),
    (519, 328, 131, 684, 505, 12, 751, 283),
    (841, 478, 871, 870, 679, 56, 70, 796),
    (430, 764, 804, 21, 928, 73, 368, 747),
    (875, 553, 315, 807, 164, 784, 473, 3),
    (91, 567, 366, 483, 668, 636, 951, 8),
    (64, 449, 349, 1016, 405, 856, 123, 965),
    (242, 113, 756, 59, 403, 25, 996, 189),
    (151, 92, 771, 792, 573, 881, 883, 955),
    (240, 377, 270, 903, 85, 435, 64, 561),
    (418, 932, 639, 478, 529, 183, 985, 453),
    (139, 784, 560, 165, 256, 808, 749, 78),
    (677, 289, 150, 698, 294, 250, 973, 397),
)
