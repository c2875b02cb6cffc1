"""How much the randomized, repeated and exhaustive tests do.

``make test`` runs their short forms, ``make proof``, which sets ``MILLSTREAM_PROOF=1``, the long
ones: all tests of modules that import something from here, or the harness of connectors.
"""

from __future__ import annotations

import os

ASKS = {"effort", "PROOF", "check_source", "check_sink"}
PROOF = os.environ.get("MILLSTREAM_PROOF") == "1"


def effort(short, long):
    """Return how much a test does: ``short`` in ``make test``, ``long`` in ``make proof``."""
    return long if PROOF else short
