from __future__ import annotations

import time

from millstream.server.measures import Measures


def test_a_snapshot_has_no_latency():
    measures = Measures()
    measures.delivered("t", 0)  # committed at no time
    assert measures.latencies() == {}
    measures.delivered("t", int(time.time() * 1e6))
    p50, p99 = measures.latencies()["t"]
    assert 0 <= p50 <= p99 < 1e6
