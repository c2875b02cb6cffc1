"""For all tests: what is slow the first time only is done before any of them is timed."""

from __future__ import annotations

import pyarrow as pa

pa.array([0])  # imports pandas
