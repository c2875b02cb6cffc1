"""The catalog: what exists. Durable, in a log of its own, one row for each change of it."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.catalog.connection import DEAD_LETTERS, Connection
from millstream.catalog.ddl_lock import DDL_SECONDS, DdlLock
from millstream.catalog.options import FOREVER, Options
from millstream.catalog.secrets import FILE_NAME, Secrets
from millstream.errors import (
    BrokenDefinitionError,
    Error,
    InvalidNameError,
    InvalidOptionError,
    LogError,
    ObjectExistsError,
    ObjectNotFoundError,
    WrongObjectError,
)
from millstream.log import Retention, schema_from_text, schema_text
from millstream.model.names import check_name
from millstream.model.schema import Schema
from millstream.sql import (
    WatermarkSpec,
    create_sink,
    create_source,
    create_table,
    duration_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.log import Log
    from millstream.model.schema import Column

TOPIC: Final = "__catalog"
SYSTEM: Final = "__"
"""Names that begin like this are the database's own."""

_SCHEMA: Final = Schema.of(entry="VARCHAR NOT NULL")
_DURATIONS: Final = ("retention", "idle_timeout")

LEAST_HISTORY: Final = 64 << 20
"""So many bytes of the changes of a table or a view are kept at least, if it is not said how much.
"""

Kind = Literal["source", "table", "view", "stream"]
_KINDS: Final = ("source", "table", "view", "stream")


@dataclass(frozen=True, slots=True)
class Definition:
    """A source, a table, a view or a stream.

    Attributes:
        kind: which of them.
        name: its name, as it was written.
        schema: its columns, and the key of a table.
        options: how it behaves.
        watermark: its event time, or None.
        created_at: when it was made, in microseconds since 1970 UTC.
        born: the LSN before which it was not there: another one of its name may have been.
        query: of a view or a stream, the statement that made it.
        begins: of a view, the first LSN that it has read.
        widths: of a view, how many columns each of its inputs had: ``SELECT *`` means those.
        firsts: of a view, the first LSN that was kept of each of its inputs.
        broken: why it cannot be used, empty when it can: what was stored of it cannot be read.
        connection: the connector that feeds a source or a table, or None.
        saves_rows: of a view, its rows may change, and are saved, so that its log need not be kept.
    """

    kind: Kind
    name: str
    schema: Schema
    options: Options
    watermark: WatermarkSpec | None = None
    created_at: int = 0
    born: int = 0
    query: str = ""
    begins: int = 0
    widths: tuple[tuple[str, int], ...] = ()
    firsts: tuple[tuple[str, int], ...] = ()
    broken: str = ""
    connection: Connection | None = None
    saves_rows: bool = False

    @property
    def is_derived(self) -> bool:
        """Whether a query writes it, and nobody else may."""
        return self.kind in {"view", "stream"}

    @property
    def has_base(self) -> bool:
        """Whether its log is only its history, on the base of its saved rows."""
        return self.kind == "table" or self.saves_rows

    @property
    def bounds_history(self) -> bool:
        """Whether the database decides how much of its history is kept."""
        options = self.options
        return self.has_base and (options.retention, options.retention_bytes) == (None, None)

    @property
    def kept(self) -> Retention:
        """How much of its log is kept."""
        return Retention(max_bytes=LEAST_HISTORY) if self.bounds_history else self.options.kept

    def check_usable(self) -> None:
        """Raise if what was stored of it cannot be read.

        Raises:
            BrokenDefinitionError: it cannot be used, only shown and dropped.
        """
        if self.broken:
            raise BrokenDefinitionError(
                f"{self.name} cannot be used: {self.broken}",
                hint=f"SHOW CREATE {self.name}; DROP {self.kind.upper()} "
                f"{self.name} removes it and its rows",
            )

    def check_writable(self) -> None:
        """Raise if only a connector may write to it.

        Raises:
            WrongObjectError: a connector feeds it.
        """
        if self.connection is not None and not self.connection.writable:
            raise WrongObjectError(
                f"the {self.kind} {self.name} is fed by the connector "
                f"{self.connection.connector!r}: its rows come from there only",
                hint="write to the system it reads from, or to a source or table of your own",
            )

    @property
    def feed(self) -> Connection | None:
        """The connector that reads from outside for it, or None."""
        connection = self.connection
        return None if connection is None or connection.connector == DEAD_LETTERS else connection

    @property
    def file_name(self) -> str:
        """What files of it are called: any name will do in SQL, and another one may have had it."""
        return f"{hashlib.sha256(self.name.encode()).hexdigest()[:12]}-{self.born}"

    @property
    def is_late_log(self) -> bool:
        """Whether a view writes to it what comes too late."""
        return self.kind == "stream" and not self.query and not self.broken

    @property
    def sql(self) -> str:
        """The statement that makes it."""
        if self.query:
            return self.query
        if self.broken:
            return f"-- {self.name}: {self.broken}"
        if self.is_late_log:
            return f"-- {self.name}: the rows that came too late for a view, made with that view"
        options = _given(self.options)
        if self.connection is not None:
            if self.connection.connector == DEAD_LETTERS:
                of = self.connection.options["of"]
                return f"-- {self.name}: what the connector of {of} has rejected, made with it"
            options = {**self.connection.shown, **options}
        if self.kind == "table":
            return create_table(self.name, self.schema, options=options)
        return create_source(self.name, self.schema, watermark=self.watermark, options=options)


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """A sink: what it reads, and the connector that writes it out.

    Attributes:
        name: its name, as it was written.
        query: the SELECT whose changes it takes.
        relation: the source, table or view that it reads.
        connection: its connector.
        created_at: when it was made, in microseconds since 1970 UTC.
        born: the LSN before which it was not there: another one of its name may have been.
    """

    name: str
    query: str
    relation: str
    connection: Connection
    created_at: int = 0
    born: int = 0

    @property
    def file_name(self) -> str:
        """As that of ``Definition``."""
        return f"{hashlib.sha256(self.name.encode()).hexdigest()[:12]}-{self.born}"

    @property
    def sql(self) -> str:
        """The statement that makes it; secrets are masked."""
        return create_sink(self.name, self.query, self.connection.shown)


class Catalog:
    """All definitions. Read by any thread, changed by the dispatcher's only.

    Args:
        log: where it is kept, and where each object has its topic.
        ddl_timeout: how many seconds a statement waits for others that change what exists.

    Attributes:
        ddl: held while a statement checks what exists, and changes it.
    """

    def __init__(self, log: Log, ddl_timeout: float = DDL_SECONDS) -> None:
        self.ddl = DdlLock(ddl_timeout)
        self._log = log
        self._secrets = Secrets(log.path / FILE_NAME)
        self._objects: dict[str, Definition] = {}
        self._sinks: dict[str, SinkDefinition] = {}
        topics = log.topics
        if TOPIC not in topics:
            log.create_topic(TOPIC, _SCHEMA)
        self._load(topics)

    def _entries(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """By name what was written of each object last, and of each swap that did not end."""
        entries: dict[str, dict[str, Any]] = {}
        swaps: dict[str, dict[str, Any]] = {}
        for batch in self._log.salvage(TOPIC):
            for (text,) in batch.held_rows:
                entry = self._secrets.put_back(json.loads(text))
                name = entry["name"]
                if entry["kind"] == "swap":
                    swaps[name] = entry
                    continue
                if entry["kind"] == "sink":
                    self._read_sink(entry)
                    continue
                swaps.pop(name, None)
                if entry["kind"] == "dropped":
                    entries.pop(name, None)
                elif entry["kind"] != "kept":
                    entries[name] = entry
        return entries, swaps

    def _read_sink(self, entry: dict[str, Any]) -> None:
        """Take in what was written of a sink."""
        if entry["dropped"]:
            self._sinks.pop(entry["name"].lower(), None)
            return
        connection = Connection.from_json(entry["connection"])
        self._sinks[entry["name"].lower()] = SinkDefinition(
            entry["name"],
            entry["query"],
            entry["relation"],
            connection,
            entry["created_at"],
            entry["born"],
        )

    def _finish(self, swap: dict[str, Any]) -> None:
        """Put an object in the place of another one, since a crash came before that was done."""
        late = swap.get("late")
        named = () if late is None else (late["definition"]["name"],)
        for name in (swap["old"], swap["name"], *named, *swap["drops"], *swap["creates"]):
            if name in self._log.topics:
                self._log.drop_topic(name)
        for name, text in swap["creates"].items():
            self._log.create_topic(name, schema_from_text(text))
        for entry in (swap,) if late is None else (late, swap):  # its own entry ends the swap
            self.store(_from_json(entry["definition"], schema_from_text(entry["schema"])))

    def _load(self, topics: Iterable[str]) -> None:
        entries, swaps = self._entries()
        if swaps:
            for swap in swaps.values():
                self._finish(swap)
            entries, _ = self._entries()
            topics = self._log.topics
        for name in set(topics) & entries.keys():
            topic, entry = self._log.topic(name), entries[name]
            if entry.get("topic", topic.id) == topic.id:  # else it was dropped, and made anew
                self._objects[name.lower()] = _read(entry, topic.schema)
        known = {each.name for each in self}
        is_damaged = self._log.damage(TOPIC) is not None
        for name in topics:
            if name.startswith(SYSTEM) or name in known:
                continue
            if is_damaged:
                self._objects[name.lower()] = _unknown(name, self._log.topic(name).schema)
            else:  # a crash between two steps of CREATE leaves a topic that nobody knows
                self._log.drop_topic(name)

    # ---- what there is

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._objects

    def __iter__(self) -> Iterator[Definition]:
        return iter(sorted(self._objects.values(), key=lambda each: each.name))

    def __getitem__(self, name: str) -> Definition:
        """The definition of that name, however it is written.

        Raises:
            ObjectNotFoundError: there is none; the hint has the nearest name.
        """
        found = self.get(name)
        if found is None:
            raise ObjectNotFoundError(
                f"there is no source, table or view {name!r}", hint=self._nearest(name)
            )
        return found

    def get(self, name: str) -> Definition | None:
        """The definition of that name, or None."""
        if not isinstance(name, str):
            raise InvalidOptionError(
                f"expected a name, got {type(name).__name__} {name!r}",
                hint="give the name of a source, table or view as a str",
            )
        return self._objects.get(name.lower())

    def has(self, definition: Definition) -> bool:
        """Whether the object of a definition still exists; columns may have been added to it."""
        found = self._objects.get(definition.name.lower())
        return found is not None and found.born == definition.born

    def of_kind(self, kind: Kind, name: str) -> Definition:
        """The definition of that name, which must be of a kind.

        Raises:
            WrongObjectError: it is of another one.
        """
        found = self[name]
        if found.kind != kind:
            raise WrongObjectError(
                f"{found.name} is a {found.kind}, not a {kind}", hint=f"write {found.kind.upper()}"
            )
        return found

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name.lower(), list(self._objects), 1)
        if near:
            return f"did you mean {self._objects[near[0]].name}?"
        names = ", ".join(each.name for each in self)
        return f"available: {names}" if names else "CREATE SOURCE or CREATE TABLE makes one"

    # ---- sinks

    @property
    def sinks(self) -> list[SinkDefinition]:
        """All sinks, by name."""
        return sorted(self._sinks.values(), key=lambda each: each.name)

    def sink(self, name: str) -> SinkDefinition:
        """The sink of that name, however it is written.

        Raises:
            ObjectNotFoundError: there is none; the hint has the nearest name.
        """
        found = self._sinks.get(name.lower())
        if found is None:
            near = difflib.get_close_matches(name.lower(), list(self._sinks), 1)
            names = ", ".join(each.name for each in self.sinks)
            hint = f"did you mean {self._sinks[near[0]].name}?" if near else f"available: {names}"
            raise ObjectNotFoundError(
                f"there is no sink {name!r}", hint=hint if names else "CREATE SINK makes one"
            )
        return found

    def has_sink(self, name: str) -> bool:
        """Whether there is a sink of that name."""
        return name.lower() in self._sinks

    def create_sink(self, sink: SinkDefinition) -> SinkDefinition:
        """Add a sink; it is on the disk when this returns.

        Raises:
            ObjectExistsError: the name is taken.
        """
        self.check_new_name(sink.name, "sink")
        return self._write_sink(replace(sink, born=self._log.lsn + 1))

    def _write_sink(self, sink: SinkDefinition, *, dropped: bool = False) -> SinkDefinition:
        self._write(
            {
                "kind": "sink",
                "dropped": dropped,
                "name": sink.name,
                "query": sink.query,
                "relation": sink.relation,
                "connection": None if dropped else sink.connection.to_json(),
                "created_at": sink.created_at,
                "born": sink.born,
            }
        )
        if dropped:
            del self._sinks[sink.name.lower()]
        else:
            self._sinks[sink.name.lower()] = sink
        return sink

    def drop_sink(self, name: str) -> SinkDefinition:
        """Remove a sink."""
        dropped = self._write_sink(self.sink(name), dropped=True)
        self._forget_secrets(dropped.connection)
        return dropped

    def pause(self, name: str, *, paused: bool) -> None:
        """Keep whether the connector of a source, a table or a sink is paused."""
        sink = self._sinks.get(name.lower())
        if sink is not None:
            connection = replace(sink.connection, paused=paused)
            self._write_sink(replace(sink, connection=connection))
            return
        definition = self[name]
        if definition.connection is None:
            raise AssertionError("only what has a connector is paused")
        altered = replace(definition, connection=replace(definition.connection, paused=paused))
        self._write({**_to_json(altered), "topic": self._log.topic(definition.name).id})
        self.adopt(altered)

    # ---- what changes

    def create(self, definition: Definition) -> Definition:
        """Add an object and its topic; both are on the disk when this returns.

        Raises:
            ObjectExistsError: the name is taken.
        """
        self.check_new(definition)
        created = self.store(definition)
        self.adopt(created)
        return created

    def replace(
        self,
        old: Definition,
        definition: Definition,
        *,
        drops: Iterable[str],
        creates: Mapping[str, Schema],
        between: Callable[[], None],
        late: Definition | None = None,
    ) -> tuple[Definition, Definition | None]:
        """Put an object and its topic in the place of another one, whose rows are gone then.

        One entry says all of it, so there is never none of the two: it is on the disk when this
        returns; after a crash it is done when the log is opened, or was not begun. Readers see the
        old definition until ``adopt``.

        Args:
            old: what is replaced.
            definition: what takes its place.
            drops: further topics that go with the old one; some may not exist.
            creates: further topics of the new one.
            between: called when it is certain that the old one goes.
            late: a second object, the log of the new one's late rows; None: there is none.

        Returns:
            The new definition, and that of the second object.
        """
        entry: dict[str, Any] = {
            "kind": "swap",
            "name": definition.name,
            "old": old.name,
            "drops": [*drops],
            "creates": {name: schema_text(schema) for name, schema in creates.items()},
            "late": None if late is None else _described(late),
            **_described(definition),
        }
        self._write(entry)
        try:
            between()
            for name in entry["drops"]:
                if name in self._log.topics:
                    self._log.drop_topic(name)
            for name, each in creates.items():
                self._log.create_topic(name, each)
            self._log.drop_topic(old.name)
        except Error:
            if old.name in self._log.topics:
                with contextlib.suppress(Error):
                    self._write({"kind": "kept", "name": definition.name})
            raise
        stored_late = None if late is None else self.store(late)
        return self.store(definition), stored_late

    def adopt(self, definition: Definition) -> None:
        """Show a definition that is stored, in place of any other of its name."""
        self._objects[definition.name.lower()] = definition

    def discard(self, definition: Definition) -> None:
        """Remove an object and its rows, whether readers have seen it or not."""
        # Without its topic it does not exist, whatever its entry says: so this is one step.
        self._log.drop_topic(definition.name)
        self._objects.pop(definition.name.lower(), None)
        entry = json.dumps({"kind": "dropped", "name": definition.name})
        with contextlib.suppress(LogError):
            self._log.append(TOPIC, [(entry,)], wal_mode="async")

    def store(self, definition: Definition) -> Definition:
        """Make the topic of an object, and write its definition. Readers see it with ``adopt``."""
        name = definition.name
        definition = replace(definition, born=self._log.lsn + 1)
        topic = self._log.create_topic(name, definition.schema, retention=definition.kept)
        try:
            self._write({**_to_json(definition), "topic": topic.id})
        except Error:
            with contextlib.suppress(Error):  # else it is dropped when the log is opened again
                self._log.drop_topic(name)
            raise
        return definition

    def check_new(self, definition: Definition) -> None:
        """Raise unless an object of this name can be made.

        Raises:
            ObjectExistsError: the name is taken.
        """
        self.check_new_name(definition.name, definition.kind)

    def check_new_name(self, name: str, kind: str) -> None:
        """Raise unless an object of this name can be made; as ``check_new``."""
        check_name(name, kind)
        if name.startswith(SYSTEM):
            raise InvalidNameError(
                f"{name!r} cannot be used: names that begin with '__' are the database's own",
                hint=f"call it {name.lstrip('_') or 'data'!r}",
            )
        if name in self or self.has_sink(name):
            known_kind, known = "sink", name
            if name in self:
                known_kind, known = self[name].kind, self[name].name
            raise ObjectExistsError(
                f"there is a {known_kind} {known} already",
                hint="use another name, or IF NOT EXISTS, or DROP it first",
            )

    def drop(self, name: str) -> Definition:
        """Remove an object and its rows, on a full disk as well."""
        definition = self[name]
        self.discard(definition)
        self._forget_secrets(definition.connection)
        return definition

    def _forget_secrets(self, dropped: Connection | None) -> None:
        """Forget the secrets of what was dropped; the next time, if the disk is full."""
        if dropped is not None:
            found = (*(each.connection for each in self), *(each.connection for each in self.sinks))
            with contextlib.suppress(LogError):
                self._secrets.keep_only(each for each in found if each is not None)

    def add_column(self, name: str, column: Column) -> Definition:
        """Add a column; rows from before have NULL in it."""
        definition = self[name]
        topic = self._log.add_column(definition.name, column.name, column.declared)
        self._objects[name.lower()] = altered = replace(definition, schema=topic.schema)
        return altered

    def _write(self, entry: dict[str, Any]) -> None:
        text = json.dumps(self._secrets.take_out(entry))
        # Twice, in frames of their own: one damaged place must not make objects unknown.
        parts = [part for _ in range(2) for part in self._log.appender.prepare(TOPIC, [(text,)])]
        self._log.appender.commit(parts, wal_mode="sync")


def _given(options: Options) -> dict[str, Any]:
    """The options that differ from their defaults, as they are written in SQL."""
    given: dict[str, Any] = {}
    for name in Options.__slots__:
        value = getattr(options, name)
        if value != getattr(Options(), name):
            given[name] = _duration(value) if isinstance(value, timedelta) else value
    return given


def _duration(value: timedelta) -> str:
    return "forever" if value == FOREVER else duration_text(value)


def _described(definition: Definition) -> dict[str, Any]:
    """All that is needed to store a definition again, its columns included."""
    return {"schema": schema_text(definition.schema), "definition": _to_json(definition)}


def _to_json(definition: Definition) -> dict[str, Any]:
    options = {name: getattr(definition.options, name) for name in Options.__slots__}
    for name in _DURATIONS:
        if options[name] is not None:
            options[name] = options[name].total_seconds()
    mark = definition.watermark
    return {
        "kind": definition.kind,
        "name": definition.name,
        "options": options,
        "watermark": None if mark is None else [mark.column, mark.delay.total_seconds()],
        "created_at": definition.created_at,
        "born": definition.born,
        "query": definition.query,
        "begins": definition.begins,
        "widths": definition.widths,
        "firsts": definition.firsts,
        "connection": None if definition.connection is None else definition.connection.to_json(),
        "saves_rows": definition.saves_rows,
    }


def _read(entry: dict[str, Any], schema: Schema) -> Definition:
    """A definition; one that cannot be read is there all the same, to be shown and dropped."""
    try:
        return _from_json(entry, schema)
    except Exception as error:  # noqa: BLE001 - whatever another release may have written
        why = f"its definition cannot be read: {type(error).__name__}: {error}"
        kind: Kind = entry["kind"] if entry["kind"] in _KINDS else "source"
        query, born = str(entry.get("query", "")), entry.get("born", 0)
        return Definition(
            kind, entry["name"], schema, Options(), query=query, born=born, broken=why
        )


def _unknown(name: str, schema: Schema) -> Definition:
    why = "its definition was lost with a damaged part of the catalog"
    return Definition("source", name, schema, Options(), broken=why)


def _from_json(entry: dict[str, Any], schema: Schema) -> Definition:
    options = dict(entry["options"])
    for name in _DURATIONS:
        if options[name] is not None:
            options[name] = timedelta(seconds=options[name])
    mark, connection = entry["watermark"], entry.get("connection")
    return Definition(
        entry["kind"],
        entry["name"],
        schema,
        Options(**options),
        None if mark is None else WatermarkSpec(mark[0], timedelta(seconds=mark[1])),
        entry["created_at"],
        entry["born"],
        entry["query"],
        entry["begins"],
        tuple((name, width) for name, width in entry["widths"]),
        tuple((name, lsn) for name, lsn in entry.get("firsts", ())),
        connection=None if connection is None else Connection.from_json(connection),
        saves_rows=entry.get("saves_rows", False),
    )
