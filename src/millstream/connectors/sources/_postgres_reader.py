"""The reader of ``postgres-cdc``: a snapshot, then the stream; a snapshot again where needed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from millstream.connectors._postgres import EXTRA, connect, failure
from millstream.connectors.contract import Delivery, SourceReader
from millstream.connectors.registry import needs
from millstream.connectors.sources._postgres_position import Position, SnapshotNeeded
from millstream.connectors.sources._postgres_snapshot import SnapshotPhase
from millstream.connectors.sources._postgres_stream import StreamPhase

if TYPE_CHECKING:
    from millstream.connectors.sources._postgres_table import FollowedTable


class PostgresReader(SourceReader):
    """Reads a table of PostgreSQL.

    Args:
        followed: the table, there and here.
        position: where to go on; None: at the beginning.
    """

    def __init__(self, followed: FollowedTable, position: Position | None) -> None:
        self._followed = followed
        self._driver: Any = needs("psycopg", EXTRA)
        self._side = connect(followed.settings)
        try:
            self._phase = self._opened(position)
        except self._driver.Error as error:
            self._side.close()
            raise failure(error, "the replication cannot be started") from error
        except BaseException:
            self._side.close()
            raise

    def _opened(self, position: Position | None) -> SnapshotPhase | StreamPhase:
        schema = self._followed.target.schema
        if position is None or not position.lsn:
            return SnapshotPhase(self._side, self._followed, schema, position)
        try:
            return StreamPhase(self._side, self._followed, schema, position)
        except SnapshotNeeded:
            return SnapshotPhase(self._side, self._followed, schema, position)

    def read(self, timeout: float) -> Delivery | None:
        """The next rows of the snapshot, or the next transaction."""
        phase = self._phase
        try:
            delivery = phase.read(timeout)
            if isinstance(phase, SnapshotPhase) and phase.is_done:
                phase.close()
                self._phase = StreamPhase(self._side, self._followed, phase.schema, phase.position)
        except SnapshotNeeded:
            phase.close()
            self._phase = SnapshotPhase(self._side, self._followed, phase.schema, phase.position)
            return None
        except self._driver.Error as error:
            raise failure(error, "the connection to PostgreSQL is lost") from error
        return delivery

    def committed(self, position: Any) -> None:  # noqa: ANN401 - a JSON value
        """Confirm a position to the server."""
        at = Position.from_json(position)
        if at.lsn and isinstance(self._phase, StreamPhase):
            self._phase.confirm(at.lsn)

    def lag(self) -> int | None:
        """Bytes of the server's log that it is behind, as of some seconds ago."""
        phase = self._phase
        return phase.lag() if isinstance(phase, StreamPhase) else None

    def metrics(self) -> dict[str, int | float]:
        """What the slot holds, and how many transactions came."""
        phase = self._phase
        return phase.metrics() if isinstance(phase, StreamPhase) else {}

    def close(self) -> None:
        """Close all connections."""
        for each in (self._phase, self._side):
            with contextlib.suppress(Exception):
                each.close()
