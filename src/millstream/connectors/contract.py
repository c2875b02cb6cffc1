"""The contract of connectors: what an author writes, and the values that travel. Pure.

A source connector brings rows in: ``SourceConnector`` is made with its settings and opened at a
position, and its reader gives deliveries. One delivery is one commit of the log: its rows, what was
rejected, and the position after it are there together or not at all. So nothing is lost and nothing
comes twice, whatever is killed, if the reader goes on after exactly the position it is opened at.

A sink connector takes changes out: its writer is given batches in LSN order. One that stores the
token of a batch together with its rows, in one transaction outside, is ``transactional``: it is
resumed after that token, exactly once. Any other is resumed after what was acknowledged here, at
least once.

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
        name: in small letters, with underscores. One that ends with ``.*`` stands for all that
            begin so: ``kafka.*`` for ``kafka.fetch.min.bytes``.
        kind: what its value is: text, int, float, bool, duration (``'5 seconds'``: a float, in
            seconds), size (``'64 MB'``: an int, in bytes), choice (one of ``choices``), json
            (text that is parsed) or place (a path of a file or directory, or its URL).
        required: whether it must be given.
        default: its value when it is not given.
        secret: whether it is never shown. Its value may be ``${env:NAME}`` or ``${file:/path}``.
        choices: of a choice, the values.
        help: what it means, in a few words.
        least: of a number, the least that it may be.
        most: of a number, the greatest that it may be.
        embedded: whether only an embedded database takes it: it decides what code runs, or which
            files are used, and ``--files-dir`` of a server could not bound it.
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
        """Whether it is the option of a name.

        >>> Option("kafka.*").covers("kafka.acks"), Option("topic").covers("topics")
        (True, False)
        """
        return name.startswith(self.name[:-1]) if self.name.endswith(".*") else name == self.name


WITHIN: Final = "within"
"""An option that bounds where links may lead; a server sets it to a directory of --files-dir."""


class Settings(Mapping[str, Any]):
    """The values of all options of a connector, checked; secrets and references are resolved.

    What was not given has its default; options of ``.*`` are there only if they were given. Its
    text shows no secret.

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
        """Those of an option that ends with ``.*``, without the prefix.

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
    """A record that cannot be taken; it goes to the dead letters, in the commit of its delivery.

    Attributes:
        reason: why, in plain words.
        payload: the record as it came.
        origin: where it was, such as ``orders/3@1042``; empty when that means nothing.
    """

    reason: str
    payload: bytes = b""
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What is committed as one: rows or changes, the position after them, what was rejected.

    Attributes:
        rows: new rows of a source; of a table, rows that are upserted. Arrow data whose columns
            are found by name (missing ones are NULL), or tuples in the order of the columns.
            Tuples that do not fit are rejected one by one; Arrow data must fit as a whole.
        changes: of a table, changes in order, after ``rows``. Of one key only the last one counts:
            a delivery is one transaction, and nobody sees its middle.
        position: a JSON value; ``open`` is given it to go on after this delivery. It says
            everything that is needed, that a snapshot is half done as well. None: as before.
        rejected: what cannot be taken.
        watermark: of a source: event time has come so far (datetime, or microseconds since 1970).
        new_columns: nullable columns that the outside has got, added at the end before the rows
            are taken; those that exist are passed over.
    """

    rows: pa.Table | pa.RecordBatch | Sequence[Row] = ()
    changes: Sequence[RowChange] = ()
    position: Any = None
    rejected: Sequence[Rejected] = ()
    watermark: datetime | int | None = None
    new_columns: Sequence[Column] = ()


class SourceEnd(Exception):  # noqa: N818 - as StopIteration
    """Raised by ``read`` when nothing will ever come again: the connector has finished."""


@dataclass(frozen=True, slots=True)
class Target:
    """The source or table that a connector writes to.

    Attributes:
        name: its name.
        kind: which of them.
        schema: its columns and its key; in ``discover``, where there are none yet, it says nothing.
        id: unique for this object, also among those of that name that were dropped; a slot or a
            consumer group may be named after it. Letters, digits and underscores. Not final in
            ``check``, before the object exists.
    """

    name: str
    kind: TargetKind
    schema: Schema
    id: str = ""


class SourceReader(ABC):
    """An opened source connector. One thread uses it, the connector's own."""

    @abstractmethod
    def read(self, timeout: float) -> Delivery | None:
        """The next delivery; None when nothing came within ``timeout`` seconds.

        It must return soon after the timeout (stopping waits for it), and at once when there is
        something: it makes no sense to wait for more.

        Raises:
            SourceEnd: nothing will ever come again.
            ConnectorFailedError: a repetition is in vain; the connector stops.
            Exception: any other trouble: closed, and opened again after a pause.
        """

    def committed(self, position: Any) -> None:  # noqa: ANN401, B027 - may be left as it is
        """All up to a position is on the disk here: the outside may forget it."""

    def lag(self) -> int | None:
        """How far it is behind the outside, in the outside's own unit; None: unknown."""
        return None

    def metrics(self) -> dict[str, int | float]:
        """More numbers, for SHOW CONNECTORS and monitoring. Called by any thread."""
        return {}

    def close(self) -> None:  # noqa: B027 - may be left as it is
        """Let go of connections. Called once, also after an error."""


class SourceConnector(ABC):
    """A kind of source: its options, and how to open it. One module, one class.

    Made anew for each check and each attempt to open, with secrets resolved at that moment.

    Attributes:
        settings: the values of its options.
        target: what it writes to.
    """

    name: ClassVar[str]
    """What ``connector = '...'`` says."""
    extra: ClassVar[str] = ""
    """The extra that installs what it imports: ``pip install 'millstream[kafka]'``."""
    kinds: ClassVar[tuple[TargetKind, ...]] = ("source",)
    """What it may feed: ``source``, ``table`` or both."""
    options: ClassVar[tuple[Option, ...]] = ()
    """The options it takes, besides those that all have."""
    rejects: ClassVar[bool] = True
    """Whether it may reject records, so that there is a log of dead letters."""
    allows_writes: ClassVar[bool] = False
    """Whether others may write to what it feeds."""

    def __init__(self, settings: Settings, target: Target) -> None:
        self.settings = settings
        self.target = target

    def check(self) -> None:  # noqa: B027 - may be left as it is
        """Raise unless it can be opened: at CREATE. It may ask the outside, for a few seconds.

        Raises:
            ConnectorError: the outside cannot be reached, or does not fit; with a hint.
            InvalidOptionError: options that contradict each other.
        """

    def discover(self) -> Schema:
        """The columns, and of a table the key: for a CREATE without columns."""
        raise ConnectorFailedError(
            f"the connector {self.name!r} does not know its columns",
            hint=f"write them: CREATE {self.target.kind.upper()} {self.target.name} (a INT, ...)",
        )

    @abstractmethod
    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - a JSON value
        """Connect, and go on after a position; None: from the beginning."""

    def drop(self, position: Any) -> None:  # noqa: ANN401, B027 - may be left as it is
        """After DROP: remove what was made outside, such as a slot. Called once, best effort."""


# ---- what a sink takes


@dataclass(frozen=True, slots=True)
class SinkInput:
    """What a sink reads.

    Attributes:
        name: the name of the sink.
        relation: what it reads from.
        schema: the columns of its batches, and the key if they have one.
        retracts: whether rows may change or disappear; False: only new rows come.
        id: unique for this sink, also among those of that name that were dropped, and among
            databases. A transactional sink stores its token under it. Letters, digits, underscores.
            Not final in ``check``, before the sink exists.
    """

    name: str
    relation: str
    schema: Schema
    retracts: bool
    id: str = ""


class SinkWriter(ABC):
    """An opened sink connector. One thread uses it, the connector's own.

    Attributes:
        rejected: what the outside does not take; the runtime moves it to the dead letters, before
            it acknowledges. Add to it with ``reject``.
    """

    def __init__(self) -> None:
        self.rejected: list[Rejected] = []

    def position(self) -> str | None:
        """The token that the outside has stored last under the sink's id; None: none.

        Called once, after opening, of transactional sinks only.
        """
        return None

    @abstractmethod
    def write(self, batch: SinkBatch) -> bool:
        """Take a batch. True: it and all before it are stored; False: held back until ``flush``.

        The batch after an exception is the same one, or an earlier one, from a new writer.
        """

    def flush(self, *, finish: bool) -> bool:  # noqa: ARG002
        """Store what is held back, if it is time to; returns whether everything is stored now.

        Called when there is nothing to write, several times a second; with ``finish``, at the end:
        then it must be stored.
        """
        return True

    def reject(self, reason: str, payload: bytes = b"", origin: str = "") -> None:
        """Put something aside that the outside will never take."""
        self.rejected.append(Rejected(reason, payload, origin))

    def metrics(self) -> dict[str, int | float]:
        """More numbers, for SHOW CONNECTORS and monitoring. Called by any thread."""
        return {}

    def close(self) -> None:  # noqa: B027 - may be left as it is
        """Let go of connections; what is not stored is not to be stored. Called once."""


class SinkConnector(ABC):
    """A kind of sink: its options, and how to open it. One module, one class.

    Made anew for each check and each attempt to open, with secrets resolved at that moment.

    Attributes:
        settings: the values of its options.
        input: what it reads.
    """

    name: ClassVar[str]
    """What ``connector = '...'`` says."""
    extra: ClassVar[str] = ""
    """The extra that installs what it imports."""
    options: ClassVar[tuple[Option, ...]] = ()
    """The options it takes, besides those that all have."""
    transactional: ClassVar[bool] = False
    """Whether ``write`` stores the token with the rows, so that ``position`` resumes exactly."""
    rejects: ClassVar[bool] = False
    """Whether it may reject rows, so that there is a log of dead letters."""
    batch_rows: ClassVar[int | None] = None
    """How many rows are in a batch at most, unless the option says so; None: any number."""
    batch_delay: ClassVar[float | None] = None
    """For how many seconds rows are gathered, unless the option says so; None: not at all."""

    def __init__(self, settings: Settings, input: SinkInput) -> None:  # noqa: A002 - the word
        self.settings = settings
        self.input = input

    def check(self) -> None:  # noqa: B027 - may be left as it is
        """Raise unless it can be opened: at CREATE. It may ask the outside, for a few seconds.

        Raises:
            ConnectorError: the outside cannot be reached, or does not fit; with a hint.
            InvalidOptionError: options that contradict each other, or the columns.
        """

    @abstractmethod
    def open(self) -> SinkWriter:
        """Connect."""

    def drop(self) -> None:  # noqa: B027 - may be left as it is
        """After DROP: remove what was made outside besides the rows. Called once, best effort."""


@dataclass(slots=True)
class Counters:
    """What a connector has done since it was started.

    Attributes:
        rows: rows delivered to the log, or stored outside.
        batches: deliveries, or batches.
        rejected: records that went to the dead letters.
    """

    rows: int = 0
    batches: int = 0
    rejected: int = 0
    more: dict[str, int | float] = field(default_factory=dict)
