"""The bridge's Java side, in a session: its classes, and the secret that they share with ours."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any, Final

from millstream.spark import internals
from millstream.spark.engine_jar import engine_jar

if TYPE_CHECKING:
    from millstream.spark.bridge.server import BridgeServer

SOURCE_FORMAT: Final = "millstream.bridge.LogSource"
SINK_FORMAT: Final = "millstream.bridge.ChangeSink"


def add_to(session: Any, *, is_ours: bool) -> None:  # noqa: ANN401 - a SparkSession
    """Make the engine's classes known to a session, its executors included.

    Args:
        session: the session.
        is_ours: whether its Java was started with the jar on its class path.
    """
    if not is_ours:
        internals.load_jar(session, engine_jar())
    internals.send_jar(session, engine_jar())


def share_secret(session: Any, server: BridgeServer) -> None:  # noqa: ANN401
    """Give the session's Java the secret of a server.

    Options of a query are shown in plans, so it is not among them. Nor does it pass the gateway,
    which a debug log would write down: it goes through a file that only this user can read, for a
    moment.
    """
    place = {"host": server.host, "port": str(server.port)}
    known = {"secret": server.secret.hex(), "certificate": server.certificate.hex()}
    with tempfile.NamedTemporaryFile("w", prefix="millstream-", suffix=".json") as file:
        json.dump(place | known, file)
        file.flush()
        internals.jvm_of(session).millstream.bridge.Address.learn(file.name)
