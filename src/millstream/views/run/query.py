"""One Spark query: a view's plan, its feed, its sink, its checkpoint."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import Error, PipelineError
from millstream.log.storage import make_private, write_file
from millstream.spark import internals
from millstream.spark.bridge import java_side
from millstream.spark.errors import FULL_DISK, SparkError, sql_error
from millstream.views.lower.analysis import (
    calls,
    functions,
    optimized_plan,
    sql_frame,
    value,
)
from millstream.views.lower.event_time import Closing
from millstream.views.lower.lowering import Leaving, lower
from millstream.views.lower.plans import LogLeaf, check_plan
from millstream.views.plan.plan import dated_relation, log_relation
from millstream.views.run.checkpoint import offset_in
from millstream.views.run.columns import (
    LOG,
    LSN,
    WATERMARK,
    WEIGHT,
    arrow_of,
    columns_json,
    dated_fields,
    name_in_feed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from millstream.spark.bridge.server import BridgeServer
    from millstream.spark.session import Spark
    from millstream.views.lower.lowering import Dataflow
    from millstream.views.plan.plan import ViewPlan
    from millstream.views.run.past_relations import PastRelation

_FOR_EVER: Final = "10000 hours"
"""The database ends batches, not Spark's clock."""

_ENDED: Final = "Spark's Java has ended while the query ran"
_ENDED_HINT: Final = (
    "It is started again by itself, and views go on. If this query ends it each time, it makes "
    "more at once than Java has memory for: see spark.driver.memory."
)

_HEAD: Final = (LOG, LSN, WEIGHT)
_FINGERPRINT: Final = "dataflow.sha256"


def _nothing() -> None:
    """Do nothing: no checkpoint of this query has been written."""


@dataclass(slots=True)
class SparkQuery:
    """A view's query, ready to be started.

    Attributes:
        spark: the session's owner.
        plan: what it does.
        columns: what its feed has.
        logs: the columns of each input.
        checkpoint: where Spark keeps its state.
        server: where its tasks connect to, once Spark runs.
        feed: the name under which the server knows it.
        times: the place of each input's event-time column; -1 without a watermark.
        timed: the inputs whose watermark lets state go; its feed has the same set, and drops their
            late rows. Known once it was planned.
        before_rebuild: called before a checkpoint that does not fit is removed; raises when what
            the query has read cannot be read again.
        operators: what each of them does; known once it was planned.
        keys: if its rows are groups, the places of the columns that distinguish them; else None.
            Known once it was planned.
        grows: whether no row of its result ever changes or goes; known likewise.
        leaves: the log that each RDD in its plan stands for; known once it was analysed.
    """

    spark: Spark
    plan: ViewPlan
    columns: pa.Schema
    checkpoint: Path
    server: Callable[[], BridgeServer]
    feed: str
    logs: tuple[pa.Schema, ...]
    times: tuple[int, ...]
    timed: set[int] = field(default_factory=set)
    before_rebuild: Callable[[], None] = _nothing
    operators: tuple[str, ...] = ()
    keys: tuple[int, ...] | None = None
    grows: bool = False
    leaves: dict[int, int] = field(default_factory=dict)
    _session: Any = None
    _frame: Any = None  # the query as it was analysed in the session
    _lowered: Dataflow | None = None
    # Not of a query that is made from this one by ``replace``, with another feed or plan:
    _shared: BridgeServer | None = field(init=False, default=None)  # its secret is known in Java

    @property
    def session(self) -> Any:  # noqa: ANN401 - a SparkSession
        """The view's own session."""
        current = self.spark.session.sparkContext
        if self._session is None or self._session.sparkContext is not current:
            self._session = self.spark.for_view()
            self._frame = self._lowered = self._shared = None
        return self._session

    @property
    def partitions(self) -> list[SparkQuery]:
        """The query of each partition: this one."""
        return [self]

    @property
    def feeds(self) -> list[str]:
        """The names under which the server knows it."""
        return [self.feed]

    def start(self) -> RunningQuery:
        """Run it, from the checkpoint on.

        Raises:
            SparkError: Spark refuses it.
        """
        if offset_in(self.checkpoint) is None:
            # Of a first batch that was never committed Spark finds some state, and gives up.
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        result = self.streaming_result()
        columns = self._sent_columns()
        hidden = [self.columns.field(LSN), self.columns.field(WEIGHT)]
        writer = (
            result.writeStream.format(java_side.SINK_FORMAT)
            .options(**self._address(), columns=columns_json(pa.schema([*columns, *hidden])))
            .option("checkpointLocation", str(self.checkpoint))
            .outputMode("update")
            .trigger(realTime=_FOR_EVER)
        )
        attempt = calls(result.sparkSession)  # Java may have died: not another one's
        return RunningQuery(value(attempt.start(internals.java_writer(writer))))

    def _sent_columns(self) -> pa.Schema:
        """The columns of what leaves the dataflow: all but the ends of windows."""
        columns = arrow_of(self.analysed().schema, self.plan.spark_sql)
        return columns if self.plan.window is None else columns.remove(len(columns) - 1)

    def streaming_result(self) -> Any:  # noqa: ANN401 - a DataFrame
        """What leaves the dataflow that the query's plan becomes.

        Raises:
            SparkError: Spark does not understand the query.
            SqlUnsupportedError: there is no operator for some part of it.
        """
        session = self.session
        jvm = internals.jvm_of(session)
        dataflow = self.lowered()
        self._keep_state_of(dataflow)
        named = [self._in_feed(log) for log in range(len(self.logs))]
        used = {
            each.name: each
            for log in sorted(dataflow.used)
            for each in (named[log][place] for place in sorted(dataflow.used[log]))
        }
        head = [*_HEAD, WATERMARK] if dataflow.timed else _HEAD
        used = {name: self.columns.field(name) for name in head} | used
        columns = pa.schema(list(used.values()))
        logs = pa.schema([(f"log{log}", pa.struct(fields)) for log, fields in enumerate(named)])
        rows = (
            session.readStream.format(java_side.SOURCE_FORMAT)
            .options(**self._address(), columns=columns_json(columns))
            .load()
        )
        connected = jvm.millstream.dataflow.Dataflow.connect(
            internals.java_frame(rows),
            self.feed,
            dataflow.entry,
            dataflow.operators,
            columns_json(columns),
            columns_json(logs),
        )
        return internals.frame_of(session, connected)

    def state_size(self) -> tuple[int, int] | None:
        """How many rows its state has, and how many bytes; None when that is not known."""
        if self._session is None:
            return None
        return internals.state_size(self._session, self.feed)

    def _keep_state_of(self, dataflow: Dataflow) -> None:
        """Remove the checkpoint of another dataflow: its state is not of these operators.

        Another version of Spark, say, may plan the query in another way.

        Raises:
            ViewFailedError: what the view has read cannot be read again.
        """
        noted = self.checkpoint / _FINGERPRINT
        if not noted.exists() or noted.read_text() != dataflow.fingerprint:
            if offset_in(self.checkpoint) is not None:
                self.before_rebuild()
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            make_private(self.checkpoint)
            write_file(noted, [dataflow.fingerprint.encode()], durable=False)

    def lowered(self) -> Dataflow:
        """The dataflow of the query.

        Raises:
            SparkError: Spark does not understand the query.
            SqlUnsupportedError: there is no operator for some part of it.
        """
        frame = self.analysed()  # which forgets what was lowered in another session
        if self._lowered is None:
            jvm = internals.jvm_of(self.session)
            check_plan(jvm, internals.analyzed_plan(frame))
            relations = {
                rdd: LogLeaf(log, self.plan.grows[log], self.times[log], self.plan.unique[log])
                for rdd, log in self.leaves.items()
            }
            plan = optimized_plan(frame)
            self._lowered = lower(
                jvm, plan, relations, self._closing(frame.columns), self._slack(), self._leaving()
            )
        self.timed.clear()
        self.timed.update(self._lowered.timed)
        return self._lowered

    def _closing(self, columns: list[str]) -> Closing | None:
        """What is known of its windows, if they close."""
        plan, window = self.plan, self.plan.window
        if window is None or window.kind == "session":
            return None
        end = len(columns) - 1
        return Closing(end, window.size, plan.lateness, not plan.retracts, plan.inputs)

    def _leaving(self) -> Leaving:
        """How rows leave the dataflow."""
        return Leaving(self.plan.emit, has_ends=self.plan.window is not None)

    def _slack(self) -> int:
        """How far behind the watermark a row can be that comes in time, if windows do not close."""
        window = self.plan.window
        return 0 if window is None else window.size + self.plan.lateness - 1

    def analysed(self) -> Any:  # noqa: ANN401 - a DataFrame
        """The query over relations that Spark knows nothing of but their columns."""
        session = self.session
        if self._frame is not None:
            return self._frame
        leaves = dict[int, int]()
        for name, log in self._relations().items():
            schema = self.logs[log]
            if name == dated_relation(log):
                schema = pa.schema([*schema, *dated_fields()])
            leaves[internals.add_relation(session, name, columns_json(schema))] = log
        self.leaves = leaves
        try:
            self._frame = sql_frame(session, self.plan.spark_sql)
        except Exception:
            self._session = None
            raise
        return self._frame

    def _relations(self) -> dict[str, int]:
        """The logs, by the names of the relations that its SQL reads them from."""
        found = {log_relation(log): log for log in range(len(self.logs))}
        return found | {dated_relation(log): log for log in self.plan.dated}

    def _in_feed(self, log: int) -> list[pa.Field]:
        """The columns of a log, named as in the feed."""
        count = len(self.logs)
        own = [each.with_name(name_in_feed(log, each.name, count)) for each in self.logs[log]]
        return [*own, *dated_fields()] if log in self.plan.dated else own

    def _address(self) -> dict[str, str]:
        session, server = self.session, self.server()
        if self._shared is not server:
            java_side.share_secret(session, server)
            self._shared = server
        return {"host": server.host, "port": str(server.port), "feed": self.feed}

    def result_columns(self) -> pa.Schema:
        """The columns of its result, hidden ones included; then it is planned.

        Raises:
            SqlError: Spark does not understand it.
        """
        try:
            result, dataflow = self.analysed(), self.lowered()
            self.operators, self.keys = tuple(dataflow.names), dataflow.keys
            self.grows = dataflow.grows
            if dataflow.is_global and not self.plan.retracting:
                # It begins with no rows, over which it may have no value: see SnapshotSender.
                value(calls(self.session).collect(internals.java_frame(result)))
            return arrow_of(result.schema, self.plan.spark_sql)
        except Error:
            raise
        except Exception as error:
            raise sql_error(error, self.plan.spark_sql) from error

    def answer(self, relations: Mapping[str, PastRelation]) -> pa.Table:
        """What the query gives in batch, hidden columns included.

        Args:
            relations: what it reads, by the names in its SQL.

        Raises:
            SparkError: it has no value for some row.
            PipelineError: Java has ended meanwhile.
        """
        session, server, address = self.session, self.server(), self._address()
        cores = session.sparkContext.defaultParallelism
        session.conf.set("spark.sql.shuffle.partitions", str(cores))  # it is not one line
        session.conf.set("spark.sql.adaptive.enabled", "true")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")  # see Attempt.java
        try:
            for name, each in relations.items():
                address["feed"] = f"{self.feed}/{name}"
                server.add(address["feed"], each)
                session.read.format(java_side.SOURCE_FORMAT).options(
                    **address,
                    columns=columns_json(each.columns),
                    partitions=len(each.partitions),
                    bytes=each.bytes,
                ).load().createOrReplaceTempView(name)
            result = sql_frame(session, self.plan.spark_sql)
            columns = arrow_of(result.schema, self.plan.spark_sql)
            found = value(calls(session).arrow(internals.java_frame(result), self.feed))
        except SparkError:
            for each in relations.values():
                if each.error is not None:
                    raise each.error from None
            raise
        except Exception as error:
            if internals.is_disconnected(error):
                raise PipelineError(_ENDED, hint=_ENDED_HINT) from error
            raise
        finally:
            for name in relations:
                server.remove(f"{self.feed}/{name}")
        return _table(found, columns)

    def cancel(self) -> None:
        """End the batch that answers it in another thread, with an error there."""
        calls(self.session).cancel(internals.java_session(self.session), self.feed)

    def reads_clock(self) -> bool:
        """Whether its value depends on the time of day, by a function or by a text like 'now'."""
        return internals.depends_on_clock(self.analysed())

    def implicit_casts(self) -> list[tuple[str, str]]:
        """The casts of text that Spark has added: to which type, and a column in the text."""
        return internals.implicit_casts(self.analysed())

    def functions(self) -> list[str]:
        """The names of the functions that it may call."""
        return functions(self.session)


class RunningQuery:
    """A query that was started.

    Args:
        query: a StreamingQuery of Java.
    """

    def __init__(self, query: Any) -> None:  # noqa: ANN401
        self._query = query

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return bool(self._query.isActive())

    def stop(self) -> None:
        """End it, and wait for that."""
        self._query.stop()

    def check(self) -> None:
        """Raise what ended it, if anything did.

        Raises:
            SparkError: it failed.
        """
        error = self._query.exception()
        if error.isDefined():
            # The text begins with the name of Java's class.
            text = error.get().toString().split(": ", 1)[-1]
            raise SparkError(_full_disk(error.get()) or text)


def _full_disk(thrown: Any) -> str:  # noqa: ANN401
    """What the cause of a Java error says if the disk is full, which the error itself may not."""
    while thrown is not None:
        message = str(thrown.getMessage())
        if FULL_DISK in message:
            return message
        thrown = thrown.getCause()
    return ""


def _table(messages: bytes, columns: pa.Schema) -> pa.Table:
    """Arrow record batches, one after the other, as a table."""
    stream, batches = pa.BufferReader(messages), []
    while stream.tell() < len(messages):
        batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(stream), columns))
    return pa.Table.from_batches(batches, columns)
