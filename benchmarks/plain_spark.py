"""Plain Spark over Parquet files, in a process of its own: what views are measured against.

The queries are read from standard input, as JSON: each a ``Job``. Prints the seconds of each, of
its second run, which is warm, and the processor time of Java in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """A query for plain Spark.

    Attributes:
        sql: its SELECT.
        files: the Parquet files of each relation that it reads.
        streaming: whether it reads them as streams.
        result: the folder where its rows are written, by a run that is not timed.
    """

    sql: str
    files: dict[str, list[str]] = field(default_factory=dict)
    streaming: bool = False
    result: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What a query took.

    Attributes:
        seconds: from its start to its end.
        processor: the processor time of Java's threads, its compilers' included.
    """

    seconds: float
    processor: float


def seconds_of(jobs: list[Job]) -> list[float]:
    """The seconds that plain Spark takes for each, in one process of its own."""
    return [run.seconds for run in runs_of(jobs)]


def runs_of(jobs: list[Job]) -> list[Run]:
    """What plain Spark takes for each, in one process of its own."""
    text = json.dumps([asdict(job) for job in jobs])
    command = [sys.executable, __file__]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"plain Spark failed:\n{run.stderr}")
    return [Run(*map(float, line.split())) for line in run.stdout.splitlines()]


def java_seconds() -> float:
    """The processor time of the Java processes that this one has started; 0 without /proc."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        fields = rest.split()
        if name == "java" and int(fields[1]) == os.getpid():
            found += int(fields[11]) + int(fields[12])
    return found / os.sysconf("SC_CLK_TCK")


def _run(spark: Any, job: Job, *, keep: bool = False) -> float:  # noqa: ANN401 - Spark's
    """Run a query once; its rows go nowhere, or to its file."""
    for name, files in job.files.items():
        schema = spark.read.parquet(files[0]).schema
        if job.streaming:  # a stream reads a folder, or a pattern
            frame = spark.readStream.schema(schema).parquet(f"{files[0]}*")
            if "window(" in job.sql:  # without a watermark it has no windows to join
                frame = frame.withWatermark("ts", "10 seconds")
        else:
            frame = spark.read.schema(schema).parquet(*files)
        frame.createOrReplaceTempView(name)
    began = time.perf_counter()
    result = spark.sql(job.sql)
    if job.streaming:
        writer = result.writeStream.format("noop").outputMode("append")
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = writer.option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
    elif keep:
        result.write.mode("overwrite").parquet(job.result)
    else:
        result.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    """Run the queries of standard input."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - others import this module without it

    given = json.load(sys.stdin)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.join.asofJoin.enabled", "true")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for fields in given:
        job = Job(**fields)
        _run(spark, job, keep=bool(job.result))
        before = java_seconds()
        seconds = _run(spark, job)
        print(seconds, java_seconds() - before, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
