"""For all tests: what is slow the first time only is done before any of them is timed."""

from __future__ import annotations

import pyarrow as pa

from .seed import SEED, load_profile

pa.array([0])  # imports pandas
load_profile()


def pytest_report_header():
    return f"MILLSTREAM_SEED={SEED}"
