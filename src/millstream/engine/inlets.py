"""The sources of one database: each one's inlet, its event time and its idle watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ObjectNotFoundError, WrongObjectError
from millstream.log import Retention
from millstream.sources import EventTime, IdleWatch, Inlet

if TYPE_CHECKING:
    from millstream.catalog import Catalog, Definition
    from millstream.dispatch import Dispatcher
    from millstream.errors import Error
    from millstream.log import Log
    from millstream.model.schema import Schema


class Inlets:
    """The inlets of a database's sources, which the dispatcher drains.

    Args:
        log: where their topics are.
        dispatcher: drains them.
        catalog: what exists.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher, catalog: Catalog) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._inlets: dict[str, Inlet] = {}
        self._system: list[Inlet] = []
        self._idle: dict[str, IdleWatch] = {}

    def open(self, definition: Definition, watermark: int | None) -> None:
        """Let rows be pushed to a source; its event time goes on from a watermark."""
        options = definition.options
        inlet = self._inlets[definition.name] = self._drained(
            definition.name,
            definition.schema,
            event_time=EventTime.of(definition, watermark),
            capacity=options.buffer_size,
            policy=options.backpressure,
            sync=options.wal_mode == "sync",
        )
        if options.idle_timeout is not None and inlet.event_time.has_column:
            seconds = options.idle_timeout.total_seconds()
            self._idle[definition.name] = IdleWatch(inlet, seconds)

    def open_system(self, name: str, schema: Schema) -> Inlet:
        """The inlet of a source of the database's own, whose rows are kept for an hour."""
        if name not in self._log.topics:
            self._log.create_topic(name, schema, retention=Retention(max_age=3600.0))
        inlet = self._drained(name, schema)
        self._system.append(inlet)
        return inlet

    def _drained(self, name: str, schema: Schema, **options: Any) -> Inlet:  # noqa: ANN401
        """An inlet that the dispatcher drains; options are those of ``Inlet``."""
        inlet = Inlet(name, schema, self._dispatcher.wakeup, **options)
        self._dispatcher.add(inlet)
        return inlet

    def __getitem__(self, definition: Definition) -> Inlet:
        """The inlet of a source.

        Raises:
            WrongObjectError: the definition is not of a source.
            ObjectNotFoundError: it was dropped, and perhaps created again with other columns.
        """
        if definition.kind != "source":
            raise WrongObjectError(
                f"{definition.name} is a {definition.kind}, not a source",
                hint="write to it with INSERT, UPDATE, DELETE or db.insert",
            )
        definition.check_usable()
        inlet = self._inlets.get(definition.name)
        if inlet is None or not self._catalog.has(definition):
            raise ObjectNotFoundError(
                f"the source {definition.name} was dropped", hint="CREATE SOURCE creates it again"
            )
        return inlet

    def evolve(self, name: str, schema: Schema) -> None:
        """Take rows with more columns from now on."""
        inlet = self._inlets.get(name)
        if inlet is not None:
            inlet.evolve(schema)

    def remove(self, name: str, error: Error) -> None:
        """Take nothing more of a source that was dropped; its inline callbacks end with an error.

        Called by the dispatcher's thread.
        """
        idle = self._idle.pop(name, None)
        if idle is not None:
            idle.stop()
        inlet = self._inlets.pop(name, None)
        if inlet is not None:
            inlet.close()
            self._dispatcher.remove(inlet)
            inlet.abandon()
            for inline in inlet.inline:
                inline.fail(error)

    def stop_watching(self) -> None:
        """End the idle watches."""
        for each in self._idle.values():
            each.stop()

    def close(self) -> None:
        """Let nothing more be pushed."""
        for inlet in (*self._inlets.values(), *self._system):
            inlet.close()

    def abandon(self) -> None:
        """Wake the producers that still wait: their rows will not be committed."""
        for inlet in (*self._inlets.values(), *self._system):
            inlet.abandon()
