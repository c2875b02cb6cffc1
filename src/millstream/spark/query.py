"""One Spark query: a view's plan, its feed, its sink, its checkpoint, in one of the gears."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.errors import Error, SqlError
from millstream.spark.bridge import compiler as bridge
from millstream.spark.checkpoint import offset_in
from millstream.spark.columns import arrow_of, columns_json
from millstream.sql.views.plan import FEED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from millstream.spark.bridge.server import BridgeServer
    from millstream.spark.session import Spark
    from millstream.sql.views.plan import ViewPlan

Gear = Literal["live", "catch-up", "micro-batch"]
_FOR_EVER: Final = "10000 hours"
"""The database ends live batches, not Spark's clock."""


@dataclass(slots=True)
class SparkQuery:
    """A view's query, ready to be started in either gear.

    Attributes:
        spark: the session's owner.
        plan: what it does.
        columns: what its feed has.
        checkpoint: where Spark keeps its state.
        server: where its tasks connect to, once Spark runs.
        feed: the name under which the server knows it.
        needs_exchange: Spark puts one between source and sink, so the live gear cannot run it.
    """

    spark: Spark
    plan: ViewPlan
    columns: pa.Schema
    checkpoint: Path
    server: Callable[[], BridgeServer]
    feed: str
    needs_exchange: bool = False
    _session: Any = None
    _python: bool | None = None

    @property
    def session(self) -> Any:  # noqa: ANN401 - a SparkSession
        """The view's own session."""
        current = self.spark.session.sparkContext
        if self._session is None or self._session.sparkContext is not current:
            self._session = self.spark.for_view()
        return self._session

    @property
    def is_live(self) -> bool:
        """Whether the live gear can run it: not when a Python function gets rows in blocks."""
        if self._python is None:
            plan = self._result("live")._jdf.queryExecution().analyzed()  # noqa: SLF001
            java = self.session.sparkContext._jvm  # noqa: SLF001
            patterns = java.org.apache.spark.sql.catalyst.trees.TreePattern
            self._python = bool(plan.containsPattern(patterns.PYTHON_UDF()))
        return self.plan.live and not self._python and not self.needs_exchange

    def start(self, gear: Gear) -> Any:  # noqa: ANN401 - a StreamingQuery
        """Run it, from the checkpoint on."""
        if offset_in(self.checkpoint) is None:
            # Of a first batch that was never committed Spark finds some state, and gives up.
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        result = self._result(gear)
        names = result.columns
        writer = (
            result.writeStream.format(bridge.SINK_FORMAT)
            .options(**self._address(), keys=",".join(str(names.index(k)) for k in self.plan.keys))
            .option("hash", names.index("_hash") if "_hash" in names else -1)
            .option("live", str(gear == "live").lower())
            .option("checkpointLocation", str(self.checkpoint))
            .outputMode("update")
        )
        return writer.trigger(**_TRIGGERS[gear]).start()

    def _result(self, gear: Gear) -> Any:  # noqa: ANN401 - a DataFrame
        live = gear == "live"
        rows = (
            self.session.readStream.format(bridge.SOURCE_FORMAT)
            .options(**self._address(), live=str(live).lower(), columns=columns_json(self.columns))
            .option("lateness", self.plan.lateness if self.plan.frees else -1)
            .load()
        )
        # With one partition there is no exchange before the aggregate: row by row in one thread.
        (rows.coalesce(1) if live else rows).createOrReplaceTempView(FEED)
        try:
            return self.session.sql(self.plan.spark_sql)
        except Exception:
            self._session = None  # the next try sees what the user's session has by then
            raise

    def _address(self) -> dict[str, str]:
        return bridge.introduce(self.session, self.server()) | {"feed": self.feed}

    def result_of_nothing(self, *, rows: bool) -> tuple[pa.Schema, pa.Table | None]:
        """What the query gives for no rows, in batch: its columns, hidden ones included, and rows.

        Raises:
            SqlError: Spark does not understand it.
        """
        empty_frame(self.session, columns_json(self.columns)).createOrReplaceTempView(FEED)
        try:
            result = self.session.sql(self.plan.spark_sql)
            columns = arrow_of(result.schema, self.plan.spark_sql)
            return columns, result.toArrow() if rows else None
        except Exception as error:
            raise told(error, self.plan.spark_sql) from error

    def reads_clock(self) -> bool:
        """Whether its value depends on the time of day, by a function or by a text such as 'now'.

        Spark reads such a text where it is cast to a time, if only by ``ts < 'now'``. Its own rules
        that put the time of day in say whether there is any.
        """
        empty_frame(self.session, columns_json(self.columns)).createOrReplaceTempView(FEED)
        plan = self.session.sql(self.plan.spark_sql)._jdf.queryExecution().analyzed()  # noqa: SLF001
        java = self.session.sparkContext._jvm  # noqa: SLF001
        rules = java.org.apache.spark.sql.catalyst.optimizer
        plan = rules.ReplaceExpressions.apply(plan)
        clocks = (rules.SpecialDatetimeValues, rules.ComputeCurrentTime)
        return not all(rule.apply(plan).fastEquals(plan) for rule in clocks)


_TRIGGERS: Final[dict[Gear, dict[str, Any]]] = {
    "live": {"realTime": _FOR_EVER},
    "catch-up": {"availableNow": True},
    "micro-batch": {"processingTime": "0 seconds"},
}


def empty_frame(session: Any, columns: str) -> Any:  # noqa: ANN401 - a DataFrame
    """No rows of some columns, known as such to Spark, which PySpark's own way would not give."""
    java = session._jsparkSession  # noqa: SLF001
    jvm = session.sparkContext._jvm  # noqa: SLF001
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(columns)
    return type(session.range(0))(java.createDataFrame(jvm.java.util.ArrayList(), schema), session)


def told(error: BaseException, sql: str) -> Error:
    """Spark's error in a line: what it says, without its trace."""
    if isinstance(error, Error):
        return error
    text = str(error).strip()
    first = text.split("\n", 1)[0].split(" SQLSTATE:")[0]
    hint = "the Spark SQL of the view: " + " ".join(sql.split())
    return SqlError(first or type(error).__name__, sql=sql, line=0, column=0, hint=hint)
