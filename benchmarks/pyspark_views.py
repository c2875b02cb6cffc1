"""Plain PySpark beside ``views.py``: prints the figures of the same query as JSON.

``ping_ms``: one row at a time through a Python data source and foreachBatch, from the append to the
callback. ``rows_per_second``: rows from Parquet files, warm, availableNow, into foreachBatch.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

DDL = "symbol string, price double, qty bigint, ts timestamp"
FOLDER = Path(tempfile.mkdtemp())
LOG = FOLDER / "log.jsonl"


class LogReader(DataSourceStreamReader):
    """Rows of a file, by their number."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802, D102
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802, D102
        return {"row": len(LOG.read_bytes().splitlines())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: D102
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: D102
        first, last = partition.value
        rows = [json.loads(line) for line in LOG.read_bytes().splitlines()[first:last]]
        at = [datetime.fromtimestamp(row[3], UTC) for row in rows]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([row[0] for row in rows], pa.string()),
                pa.array([row[1] for row in rows], pa.float64()),
                pa.array([row[2] for row in rows], pa.int64()),
                pa.array(at, pa.timestamp("us", "UTC")),
            ],
            names=["symbol", "price", "qty", "ts"],
        )


class LogSource(DataSource):
    """The file as a stream."""

    @classmethod
    def name(cls) -> str:  # noqa: D102
        return "jsonlog"

    def schema(self) -> str:  # noqa: D102
        return DDL

    def streamReader(self, schema: Any) -> LogReader:  # noqa: ANN401, ARG002, D102, N802
        return LogReader()


def aggregate(frame: DataFrame) -> DataFrame:
    """The view."""
    return frame.groupBy(F.window("ts", "1 minute"), "symbol").agg(F.sum("qty"), F.count("*"))


def ping(spark: SparkSession) -> float:
    """The median of the milliseconds from an append to the callback."""
    LOG.touch()
    seen = threading.Event()
    at = [0.0]

    def take(frame: DataFrame, _: int) -> None:
        if frame.toArrow().num_rows:
            at[0] = time.perf_counter()
            seen.set()

    spark.dataSource.register(LogSource)
    query = (
        aggregate(spark.readStream.format("jsonlog").load())
        .writeStream.outputMode("update")
        .option("checkpointLocation", tempfile.mkdtemp())
        .foreachBatch(take)
        .start()
    )
    times = []
    for number in range(25):
        seen.clear()
        row = json.dumps([f"S{number % 100:02}", 1.0, 1, time.time()])
        began = time.perf_counter()
        with LOG.open("a") as log:
            log.write(row + "\n")
        if not seen.wait(120):
            raise TimeoutError
        times.append((at[0] - began) * 1e3)
    query.stop()
    return statistics.median(times[5:])


def throughput(spark: SparkSession, rows: int) -> float:
    """Rows a second from Parquet files, the best of three runs."""
    source = FOLDER / "parquet"
    source.mkdir()
    size = 100_000
    now = datetime.now(UTC).replace(second=1, microsecond=0)
    table = pa.table(
        {
            "symbol": pa.array([f"S{number % 100:02}" for number in range(size)]),
            "price": pa.array([1.0] * size),
            "qty": pa.array([1] * size, pa.int64()),
            "ts": pa.array([now] * size, pa.timestamp("us", "UTC")),
        }
    )
    for number in range(rows // size):
        pq.write_table(table, source / f"{number}.parquet")
    best = 0.0
    for _ in range(4):
        counted: dict[str, int] = {}

        def take(frame: DataFrame, _: int, counted: dict[str, int] = counted) -> None:
            for row in frame.toArrow().to_pylist():
                counted[row["symbol"]] = row["count(1)"]

        began = time.perf_counter()
        query = (
            aggregate(spark.readStream.schema(DDL).parquet(str(source)))
            .writeStream.outputMode("update")
            .option("checkpointLocation", tempfile.mkdtemp())
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        query.awaitTermination()
        if sum(counted.values()) != rows:
            raise AssertionError(counted)
        best = max(best, rows / (time.perf_counter() - began))
    return best


def main() -> None:
    """Measure and print."""
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rate = throughput(spark, int(sys.argv[1]))
    print(json.dumps({"rows_per_second": rate, "ping_ms": ping(spark)}))
    spark.stop()


if __name__ == "__main__":
    main()
