"""For all tests: what is slow the first time only is done before any of them is timed."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import settings

pa.array([0])  # imports pandas

settings.register_profile("ours", deadline=None)  # a loaded machine is not a bug
settings.load_profile("ours")
