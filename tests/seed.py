"""The number that all dice of the tests begin with, always the same unless one asks for another.

``MILLSTREAM_SEED=random`` draws one, which the first lines of the run show; that number repeats it.
"""

from __future__ import annotations

import os
import random

from hypothesis import core, settings

_WORD = os.environ.get("MILLSTREAM_SEED", "")
SEED = random.randrange(1, 10**6) if _WORD == "random" else int(_WORD or 162239)


def load_profile():
    """Let hypothesis draw its examples by the seed; without one, the same for each test always."""
    # A loaded machine is not a bug.
    settings.register_profile("same", deadline=None, derandomize=True)
    settings.register_profile("random", deadline=None, derandomize=False, print_blob=True)
    settings.load_profile("random" if _WORD else "same")
    if _WORD:
        core.global_force_seed = SEED  # as --hypothesis-seed does
