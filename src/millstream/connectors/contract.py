"""The contract of connectors: the classes that an author writes, and the values they use. Pure.

A source connector reads rows from another system. ``SourceConnector`` is created with its settings
and opened at a position; its reader returns deliveries. A delivery is one commit of the log: its
rows, the rejected records and the position after it are stored together or not at all. So no row is
lost or stored twice, whatever is killed, if the reader resumes after exactly the position at which
it is opened.

A sink connector writes changes to another system: its writer gets batches in LSN order. A sink that
stores the token of a batch together with its rows, in one transaction of the other system, is
``transactional``: it resumes after that token, exactly once. Any other sink resumes after the last
acknowledged batch, at least once.

>>> from millstream import Schema
>>> class Numbers(SourceConnector):
...     name = "numbers"
...     options = (Option("limit", "int", default=3, help="the last number"),)
...
...     def open(self, position):
...         return NumbersReader(position or 0, self.settings["limit"])
>>> class NumbersReader(SourceReader):
...     def __init__(self, last, limit):
...         self._last, self._limit = last, limit
...
...     def read(self, timeout):
...         if self._last == self._limit:
...             raise SourceEnd
...         self._last += 1
...         return Delivery(rows=[(self._last,)], position=self._last)
>>> reader = Numbers(Settings({"limit": 2}), Target("n", "source", Schema.of(n="INT"))).open(1)
>>> reader.read(0.1).rows
[(2,)]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from millstream.errors import ConnectorFailedError

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from millstream.connectors.batches import SinkBatch
    from millstream.model.row_change import RowChange
    from millstream.model.schema import Column, Schema

Row = tuple[Any, ...]
OptionKind = Literal["text", "int", "float", "bool", "duration", "size", "choice", "json", "place"]
TargetKind = Literal["source", "table"]


# ---- options


@dataclass(frozen=True, slots=True)
class Option:
    """An option that a connector takes in WITH (...).

    Attributes:
        name: in lower case, with underscores. A name that ends with ``.*`` stands for all options
            with that prefix: ``kafka.*`` for ``kafka.fetch.min.bytes``.
        kind: the type of the value: text, int, float, bool, duration (``'5 seconds'``: a float, in
            seconds), size (``'64 MB'``: an int, in bytes), choice (one of ``choices``), json
            (text that is parsed) or place (a path of a file or directory, or its URL).
        required: whether the option must be given.
        default: the default value.
        secret: whether the value is masked. It may be ``${env:NAME}`` or ``${file:/path}``.
        choices: the values of a choice.
        help: a short description.
        least: the minimum of a number.
        most: the maximum of a number.
        embedded: whether only an embedded database accepts the option, because it decides which
            code runs or which files are used, and ``--files-dir`` of a server cannot restrict it.
    """

    name: str
    kind: OptionKind = "text"
    required: bool = False
    default: Any = None
    secret: bool = False
    choices: tuple[str, ...] = ()
    help: str = ""
    least: float | None = None
    most: float | None = None
    embedded: bool = False

    def covers(self, name: str) -> bool:
        """Return whether this option covers an option name.

        >>> Option("kafka.*").covers("kafka.acks"), Option("topic").covers("topics")
        (True, False)
        """
        return name.startswith(self.name[:-1]) if self.name.endswith(".*") else name == self.name


WITHIN: Final = "within"
"""An option that bounds where links may lead; a server sets it to a directory of --files-dir."""


class Settings(Mapping[str, Any]):
    """The checked values of all options of a connector, with references to secrets resolved.

    Options that were not given have their defaults; options of ``.*`` are included only if they
    were given. The ``repr`` masks secrets.

    >>> Settings({"topic": "orders", "password": "hunter2"}, secrets=("password",))
    Settings(topic='orders', password='***')
    """

    __slots__ = ("_secrets", "_values")

    def __init__(self, values: Mapping[str, Any], *, secrets: Sequence[str] = ()) -> None:
        self._values = dict(values)
        self._secrets = frozenset(secrets)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as its option says
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def under(self, prefix: str) -> dict[str, Any]:
        """Return the values with a prefix, such as those of ``kafka.*``, without the prefix.

        >>> Settings({"kafka.acks": "all", "topic": "t"}).under("kafka.")
        {'acks': 'all'}
        """
        return {
            name.removeprefix(prefix): value
            for name, value in self._values.items()
            if name.startswith(prefix)
        }

    def __repr__(self) -> str:
        shown = (
            f"{name}={'***' if name in self._secrets and value else value!r}"
            for name, value in self._values.items()
        )
        return f"Settings({', '.join(shown)})"


# ---- what a source delivers


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that cannot be stored. It goes to the dead letters, in the commit of its delivery.

    Attributes:
        reason: the reason, in plain words.
        payload: the unchanged record.
        origin: the position of the record, such as ``orders/3@1042``; may be empty.
    """

    reason: str
    payload: bytes = b""
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One commit: rows or changes, the position after them, and rejected records.

    Attributes:
        rows: new rows of a source; rows to upsert into a table. Arrow data, whose columns are
            matched by name (missing columns are NULL), or tuples in the order of the columns.
            Invalid tuples are rejected one by one; Arrow data must be valid as a whole.
        changes: changes of a table, in order, after ``rows``. For each key only the last change
            counts, because a delivery is one transaction.
        position: a JSON value that ``open`` gets to resume after this delivery. It must contain
            everything that is needed, also that a snapshot is half done. None: unchanged.
        rejected: records that cannot be stored.
        watermark: the watermark of a source (a datetime, or microseconds since 1970).
        new_columns: nullable columns that are new in the other system. They are added at the end,
            before the rows are stored; existing columns are ignored.
    """

    rows: pa.Table | pa.RecordBatch | Sequence[Row] = ()
    changes: Sequence[RowChange] = ()
    position: Any = None
    rejected: Sequence[Rejected] = ()
    watermark: datetime | int | None = None
    new_columns: Sequence[Column] = ()


class SourceEnd(Exception):  # noqa: N818 - as StopIteration
    """Raised by ``read`` at the end of the input: the connector has finished."""


@dataclass(frozen=True, slots=True)
class Target:
    """The source or table that a connector writes to.

    Attributes:
        name: its name.
        kind: ``source`` or ``table``.
        schema: its columns and its key; meaningless in ``discover``, before there are columns.
        id: unique for this object, also among dropped objects of the same name, so that a slot or
            a consumer group may be named after it. Letters, digits and underscores. Not final in
            ``check``, before the object exists.
    """

    name: str
    kind: TargetKind
    schema: Schema
    id: str = ""


class SourceReader(ABC):
    """An opened source connector. Only the connector's own thread uses it."""

    @abstractmethod
    def read(self, timeout: float) -> Delivery | None:
        """Return the next delivery, or None if nothing arrives within ``timeout`` seconds.

        The method must return soon after the timeout, because stopping waits for it, and at once
        when data is available, without waiting for more.

        Raises:
            SourceEnd: the input has ended.
            ConnectorFailedError: retrying would not help; the connector stops.
            Exception: any other error: the reader is closed, and opened again after a pause.
        """

    def committed(self, position: Any) -> None:  # noqa: ANN401, B027 - may be left as it is
        """Called when everything up to a position is on disk: acknowledge it upstream."""

    def lag(self) -> int | None:
        """Return how far the reader is behind, in the other system's unit; None: unknown."""
        return None

    def metrics(self) -> dict[str, int | float]:
        """Return further numbers for SHOW CONNECTORS and monitoring. Called by any thread."""
        return {}

    def close(self) -> None:  # noqa: B027 - may be left as it is
        """Close connections. Called once, also after an error."""


class SourceConnector(ABC):
    """A kind of source: its options, and how to open it. One module, one class.

    The runtime creates an instance for each check and each attempt to open, and resolves secrets at
    that moment.

    Attributes:
        settings: the values of the options.
        target: the source or table that the connector writes to.
    """

    name: ClassVar[str]
    """The value of ``connector = '...'``."""
    extra: ClassVar[str] = ""
    """The extra that installs the connector's packages: ``pip install 'millstream[kafka]'``."""
    kinds: ClassVar[tuple[TargetKind, ...]] = ("source",)
    """The kinds of relation that it may write to: ``source``, ``table`` or both."""
    options: ClassVar[tuple[Option, ...]] = ()
    """The connector's options, besides those of all connectors."""
    rejects: ClassVar[bool] = True
    """Whether the connector may reject records, so that it needs a log of dead letters."""
    allows_writes: ClassVar[bool] = False
    """Whether others may also write to the relation."""

    def __init__(self, settings: Settings, target: Target) -> None:
        self.settings = settings
        self.target = target

    def check(self) -> None:  # noqa: B027 - may be left as it is
        """Raise unless the connector can be opened. Called by CREATE.

        The method may connect to the other system, for a few seconds.

        Raises:
            ConnectorError: the other system cannot be reached, or does not match; with a hint.
            InvalidOptionError: options contradict each other.
        """

    def discover(self) -> Schema:
        """Return the columns, and the key of a table, for a CREATE without columns."""
        raise ConnectorFailedError(
            f"the connector {self.name!r} does not know its columns",
            hint=f"write them: CREATE {self.target.kind.upper()} {self.target.name} (a INT, ...)",
        )

    @abstractmethod
    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - a JSON value
        """Connect, and return a reader that resumes after a position; None: from the beginning."""

    def drop(self, position: Any) -> None:  # noqa: ANN401, B027 - may be left as it is
        """Remove what the connector has created in the other system, such as a slot.

        Called once, after DROP, as a best effort.
        """


# ---- what a sink takes


@dataclass(frozen=True, slots=True)
class SinkInput:
    """What a sink reads.

    Attributes:
        name: the name of the sink.
        relation: the relation that the sink reads.
        schema: the columns of its batches, and the key if they have one.
        retracts: whether rows may change or disappear; False: the input is append-only.
        id: unique for this sink, also among dropped sinks of the same name, and among databases. A
            transactional sink stores its token under this id. Letters, digits, underscores. Not
            final in ``check``, before the sink exists.
    """

    name: str
    relation: str
    schema: Schema
    retracts: bool
    id: str = ""


class SinkWriter(ABC):
    """An opened sink connector. Only the connector's own thread uses it.

    Attributes:
        rejected: rows that the other system refuses. The runtime moves them to the dead letters
            before it acknowledges. Add rows with ``reject``.
    """

    def __init__(self) -> None:
        self.rejected: list[Rejected] = []

    def position(self) -> str | None:
        """Return the last token stored in the other system under the sink's id, or None.

        Called once, after opening, for transactional sinks only.
        """
        return None

    @abstractmethod
    def write(self, batch: SinkBatch) -> bool:
        """Write a batch. Return whether this batch and all before it are stored.

        If the method returns False, the batch is acknowledged once ``flush`` returns True. After an
        exception, a new writer gets the same batch, or an earlier one.
        """

    def flush(self, *, finish: bool) -> bool:  # noqa: ARG002
        """Store pending batches if it is time, and return whether everything is stored.

        Called several times a second when there is nothing to write; and at the end with
        ``finish``, when everything must be stored.
        """
        return True

    def reject(self, reason: str, payload: bytes = b"", origin: str = "") -> None:
        """Send a row that the other system will never accept to the dead letters."""
        self.rejected.append(Rejected(reason, payload, origin))

    def metrics(self) -> dict[str, int | float]:
        """Return further numbers for SHOW CONNECTORS and monitoring. Called by any thread."""
        return {}

    def close(self) -> None:  # noqa: B027 - may be left as it is
        """Close connections, and discard pending batches. Called once."""


class SinkConnector(ABC):
    """A kind of sink: its options, and how to open it. One module, one class.

    The runtime creates an instance for each check and each attempt to open, and resolves secrets at
    that moment.

    Attributes:
        settings: the values of the options.
        input: the relation that the sink reads, and its columns.
    """

    name: ClassVar[str]
    """The value of ``connector = '...'``."""
    extra: ClassVar[str] = ""
    """The extra that installs the connector's packages."""
    options: ClassVar[tuple[Option, ...]] = ()
    """The connector's options, besides those of all connectors."""
    transactional: ClassVar[bool] = False
    """Whether ``write`` stores the token with the rows, so that ``position`` resumes exactly."""
    rejects: ClassVar[bool] = False
    """Whether the connector may reject rows, so that it needs a log of dead letters."""
    batch_rows: ClassVar[int | None] = None
    """Default maximum number of rows in a batch; None: no limit."""
    batch_delay: ClassVar[float | None] = None
    """Default number of seconds to gather rows; None: do not gather."""

    def __init__(self, settings: Settings, input: SinkInput) -> None:  # noqa: A002 - the word
        self.settings = settings
        self.input = input

    def check(self) -> None:  # noqa: B027 - may be left as it is
        """Raise unless the connector can be opened. Called by CREATE.

        The method may connect to the other system, for a few seconds.

        Raises:
            ConnectorError: the other system cannot be reached, or does not match; with a hint.
            InvalidOptionError: options contradict each other, or the columns.
        """

    @abstractmethod
    def open(self) -> SinkWriter:
        """Connect, and return a writer."""

    def drop(self) -> None:  # noqa: B027 - may be left as it is
        """Remove what the connector has created in the other system besides the rows.

        Called once, after DROP, as a best effort.
        """


@dataclass(slots=True)
class Counters:
    """Counters of a connector since its start.

    Attributes:
        rows: rows delivered to the log, or written to the other system.
        batches: deliveries, or batches.
        rejected: records sent to the dead letters.
    """

    rows: int = 0
    batches: int = 0
    rejected: int = 0
    more: dict[str, int | float] = field(default_factory=dict)
