"""The connectors of one database: those that run, what they are doing, and how they are stopped."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.connectors.contract import SinkInput, Target
from millstream.connectors.options import OF_SINKS, OF_SOURCES, Scrubber, settings_of
from millstream.connectors.pace import Retries
from millstream.connectors.registry import sink_connector, source_connector
from millstream.connectors.running import SinkWork, SourceWork
from millstream.connectors.supervisor import STOP_SECONDS, Supervisor, describe
from millstream.engine.deliveries import PREFIX, Deliveries, StoredPosition
from millstream.errors import ConnectorError, Error, WrongObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.catalog import Catalog, Connection, Definition, SinkDefinition
    from millstream.connectors.contract import Settings, SinkConnector, SourceConnector
    from millstream.connectors.running import SinkFeed
    from millstream.dispatch import Dispatcher
    from millstream.engine.inlets import Inlets
    from millstream.log import Log
    from millstream.model.schema import Column, Schema
    from millstream.tables import Tables

SINK_PREFIX: Final = "__sink."
"""What the names of the subscriptions of sinks begin with."""

_logger = logging.getLogger("millstream.connectors")


class SinkSide(Protocol):
    """What a sink needs of the parts of the engine that are above this one."""

    def input(self, sink: SinkDefinition) -> tuple[Schema, bool]:
        """The columns that it reads, and whether its rows may change."""

    def subscribe(
        self, sink: SinkDefinition, settings: Settings, *, exactly: bool, token: str | None
    ) -> SinkFeed:
        """Its feed: ``exactly`` after a token, or from the start; else after the last ack."""


class Running:
    """A connector that was started.

    Attributes:
        definition: what it feeds, or the sink.
        kind: source, table or sink.
        supervisor: its thread.
        work: what it does there.
    """

    def __init__(
        self,
        definition: Definition | SinkDefinition,
        kind: str,
        supervisor: Supervisor,
        work: SourceWork | SinkWork,
        stored: StoredPosition | None = None,
    ) -> None:
        self.definition = definition
        self.kind = kind
        self.supervisor = supervisor
        self.work = work
        self.stored = stored

    @property
    def connection(self) -> Connection:
        """Its connector, with its options."""
        connection = self.definition.connection
        if connection is None:
            raise AssertionError("it has a connector")
        return connection


class Connections:
    """All connectors of a database.

    With ``catalog.ddl`` held, an object is created and its connector started, or the connector
    stopped and the object dropped: what is dropped has no thread, and what has one exists.

    Args:
        log: where their positions are.
        dispatcher: commits what they deliver.
        catalog: what exists.
        inlets: of the sources.
        tables: the tables.

    Attributes:
        sink_side: opens the feeds of sinks; set when the engine is assembled.
        add_column: adds a column that the outside has got; set likewise.
    """

    sink_side: SinkSide
    add_column: Callable[[Definition, Column], None]

    def __init__(
        self, log: Log, dispatcher: Dispatcher, catalog: Catalog, inlets: Inlets, tables: Tables
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._inlets = inlets
        self._tables = tables
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        self._stored: dict[str, StoredPosition] = {}
        self._is_closed = False

    # ---- opening

    def load(self) -> None:
        """Read the positions, and hold them; those of what was dropped are removed."""
        fed = {position_topic(each): each for each in self._catalog if each.feed is not None}
        for topic in self._log.topics:
            if topic.startswith(PREFIX) and topic not in fed:
                self._log.drop_topic(topic)
        for topic, definition in fed.items():
            StoredPosition.create(self._log, topic)
            self._stored[definition.name] = StoredPosition(self._log, topic)

    def start(self) -> None:
        """Start all connectors."""
        for definition in self._catalog:
            if definition.feed is not None and not definition.broken:
                self.start_source(definition)
        for sink in self._catalog.sinks:
            self.start_sink(sink)

    def prepare(self, definition: Definition) -> None:
        """Make the position of a source or table that was just created. By the dispatcher."""
        topic = position_topic(definition)
        StoredPosition.create(self._log, topic)
        self._stored[definition.name] = StoredPosition(self._log, topic)

    def start_source(self, definition: Definition) -> None:
        """Start the connector of a source or a table."""
        connection = definition.feed
        if connection is None:
            raise AssertionError("it has a connector")
        stored = self._stored[definition.name]
        deliveries = Deliveries(
            definition,
            stored,
            log=self._log,
            dispatcher=self._dispatcher,
            catalog=self._catalog,
            inlets=self._inlets,
            tables=self._tables,
            add_column=self.add_column,
        )
        given = connection.options
        work = SourceWork(
            lambda: self.source(deliveries.definition()),
            deliveries,
            rate=_number(given, "rate_limit"),
            reject_limit=_whole(given, "reject_limit"),
        )
        self._start(definition, definition.kind, connection, work, stored)

    def start_sink(self, sink: SinkDefinition) -> None:
        """Start the connector of a sink."""
        given = sink.connection.options

        def subscribe(exactly: bool, token: str | None) -> SinkFeed:
            settings = settings_of(given, self.known_options(sink))
            return self.sink_side.subscribe(sink, settings, exactly=exactly, token=token)

        rate = _number(given, "rate_limit")
        work = SinkWork(lambda: self.sink(sink), subscribe, rate=rate)
        self._start(sink, "sink", sink.connection, work)

    def _start(
        self,
        definition: Definition | SinkDefinition,
        kind: str,
        connection: Connection,
        work: SourceWork | SinkWork,
        stored: StoredPosition | None = None,
    ) -> None:
        settings = settings_of(
            {name: connection.options[name] for name in connection.options if name in _RETRIES},
            [each for each in OF_SOURCES if each.name in _RETRIES],
        )
        retries = Retries(
            settings["retry_delay"],
            settings["retry_max_delay"],
            settings["retry_limit"],
            settings["retry_rest"],
        )

        def scrub(text: str) -> str:
            return Scrubber(connection.options, connection.secrets)(text)

        supervisor = Supervisor(
            definition.name,
            work,
            retries,
            scrub,
            paused=connection.paused,
            between_commits=self._between_commits,
        )
        with self._lock:
            if self._is_closed:
                return
            self._running[definition.name] = Running(definition, kind, supervisor, work, stored)
        supervisor.start()

    def _between_commits(self, function: Callable[[], None]) -> None:
        try:
            self._dispatcher.call(function)
        except Error:  # it is closed, or has failed: there are no commits
            function()

    # ---- connectors as their definitions say

    def source(self, definition: Definition) -> SourceConnector:
        """The connector of a source or a table, its secrets resolved now."""
        connection = definition.feed
        if connection is None:
            raise AssertionError("it has a connector")
        made = source_connector(connection.connector)
        settings = settings_of(connection.options, (*made.options, *OF_SOURCES))
        kind: Any = definition.kind
        target = Target(definition.name, kind, definition.schema, self.id_of(definition))
        return made(settings, target)

    def sink(self, sink: SinkDefinition) -> SinkConnector:
        """The connector of a sink, its secrets resolved now."""
        made = sink_connector(sink.connection.connector)
        settings = settings_of(sink.connection.options, self.known_options(sink))
        schema, retracts = self.sink_side.input(sink)
        return made(
            settings, SinkInput(sink.name, sink.relation, schema, retracts, self.id_of(sink))
        )

    def known_options(self, sink: SinkDefinition) -> tuple[Any, ...]:
        """The options that the connector of a sink takes."""
        return (*sink_connector(sink.connection.connector).options, *OF_SINKS)

    def id_of(self, definition: Definition | SinkDefinition) -> str:
        """A name that no other object of any database has, of letters, digits, underscores."""
        return f"ms_{self._log.database.hex[:8]}_{definition.file_name.replace('-', '_')}"

    # ---- what runs

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> Running:
        """The connector of a source, a table or a sink.

        Raises:
            WrongObjectError: it has none.
        """
        found = self._running.get(name)
        if found is None:
            raise WrongObjectError(
                f"{name} has no connector", hint="SHOW CONNECTORS lists what has one"
            )
        return found

    def all(self) -> list[Running]:
        """All connectors, by name."""
        with self._lock:
            running = list(self._running.values())
        return sorted(running, key=lambda each: each.definition.name)

    def pause(self, name: str, *, paused: bool) -> None:
        """PAUSE or RESUME: stop a connector, or let it go on; kept for the next start.

        Raises:
            ConnectorError: a sink is still writing, and what it writes may yet be stored.
        """
        running = self[name]
        self._dispatcher.call(partial(self._catalog.pause, name, paused=paused))
        if paused:
            _stop_writing(running)
        else:
            running.supervisor.resume()

    def evolved(self, name: str) -> None:
        """Let a connector be opened again: what it feeds has another column."""
        running = self._running.get(name)
        if running is not None:
            running.supervisor.restart()

    # ---- the end

    def stop(self, name: str) -> Running | None:
        """Stop a connector, since its object is about to be dropped.

        Raises:
            ConnectorError: a sink is still writing, and what it writes may yet be stored.
        """
        running = self._running.get(name)
        if running is not None:
            if running.kind == "sink":
                _stop_writing(running)
            with self._lock:
                self._running.pop(name, None)
            running.supervisor.stop()
        return running

    def forget(self, name: str) -> None:
        """Remove the position of an object that was dropped. By the dispatcher's thread."""
        stored = self._stored.pop(name, None)
        if stored is not None:
            stored.release()
            if stored.topic in self._log.topics:
                self._log.drop_topic(stored.topic)

    def clean_up(self, running: Running) -> None:
        """Let a connector whose object was dropped remove what it has made outside."""
        definition = running.definition
        try:
            if running.kind == "sink":
                self.sink(definition).drop()  # type: ignore[arg-type] # the kind says it
            else:
                position = None if running.stored is None else running.stored.value
                self.source(definition).drop(position)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - the object is gone, whatever the outside says
            connection = definition.connection
            text = describe(error)
            if connection is not None:
                text = Scrubber(connection.options, connection.secrets)(text)
            _logger.warning(
                "%s was dropped, but not all that its connector has made outside: %s",
                definition.name,
                text,
            )

    def close(self) -> None:
        """Stop all of them: each stores what it holds, or goes on from its position the next time.

        Together they have as long as one.
        """
        with self._lock:
            self._is_closed = True
            running = list(self._running.values())
        for each in running:
            each.supervisor.ask_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        for each in running:
            each.supervisor.join(max(0.1, deadline - time.monotonic()))


def _stop_writing(running: Running) -> None:
    """Pause a connector.

    Commits of a source are fenced off; what a sink is just storing outside is in nobody's hand.

    Raises:
        ConnectorError: a sink is still writing.
    """
    if not running.supervisor.pause() and running.kind == "sink":
        raise ConnectorError(
            f"the connector of {running.definition.name} is still writing, and what it writes may "
            "yet be stored",
            hint="it is paused when the write ends; SHOW CONNECTORS shows 'stopping' until then",
        )


_RETRIES: Final = ("retry_delay", "retry_max_delay", "retry_limit", "retry_rest")


def position_topic(definition: Definition) -> str:
    """The topic of the position of a source or a table."""
    return f"{PREFIX}{definition.file_name}"


def _number(given: Any, name: str) -> float | None:  # noqa: ANN401 - a mapping of options
    known: Iterable[Any] = [each for each in OF_SOURCES if each.name == name]
    value = settings_of({name: given[name]}, list(known))[name] if name in given else None
    return None if value is None else float(value)


def _whole(given: Any, name: str) -> int | None:  # noqa: ANN401 - a mapping of options
    value = _number(given, name)
    return None if value is None else int(value)
