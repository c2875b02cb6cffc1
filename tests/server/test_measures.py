from __future__ import annotations

import time

from millstream.server.measures import Measures


def test_latencies_are_in_seconds_and_a_snapshot_has_none(monkeypatch):
    measures = Measures()
    measures.delivered("t", 0)  # committed at no time
    assert measures.latencies() == {}
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    for seconds in [*range(100), -7]:  # the clock was set back: no time has passed
        measures.delivered("t", int((1000 - seconds) * 1e6))
    assert measures.latencies() == {"t": (49.0, 98.0)}
