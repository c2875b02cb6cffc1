"""The figures of Kafka's connectors, against a real broker on this machine.

    python benchmarks/connectors_kafka.py                       all; five million records, minutes
    python benchmarks/connectors_kafka.py --records 500000 --only backlog

Ratios are of one run: the plain consumer, the source into the log, and the view, one after the
other on the same topic. `make kafka` gets the broker.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import ChangeBatch

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 4
WARM = 100
PINGS = 500
COLUMNS = "symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP"
WINDOWS = (
    "CREATE MATERIALIZED VIEW {name} AS SELECT symbol, "
    "TUMBLE_START(ts, INTERVAL '1 minute') AS minute, "
    "COUNT(*) AS n, SUM(qty) AS volume, MAX(price) AS high FROM {source} "
    "GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute') EMIT CHANGES"
)


def broker_tool() -> Any:  # noqa: ANN401 - a module
    """tools/kafka.py, which knows where Kafka is and how it is started."""
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("kafka_tool", ROOT / "tools" / "kafka.py")
    if spec is None or spec.loader is None:
        raise AssertionError("it is beside this one")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def create(address: str, topic: str, partitions: int) -> None:
    """Make a topic."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def record(number: int) -> bytes:
    """A trade as JSON, about a hundred bytes."""
    minute, second = divmod(number // 1000, 60)
    time = f"{minute // 60 % 24:02}:{minute % 60:02}:{second:02}.{number % 1000:03}"
    return (
        f'{{"symbol":"S{number % 100}","price":{100 + number % 977 * 0.25},"qty":{number % 1000},'
        f'"ts":"2026-01-01T{time}Z"}}'
    ).encode()


def fill(address: str, topic: str, records: int) -> None:
    """Produce the backlog."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "lz4",
        }
    )
    for number in range(records):
        while True:
            try:
                producer.produce(topic, record(number), partition=number // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def plain_consumer(address: str, topic: str, records: int) -> float:
    """Records in a second that a plain loop of poll and json.loads reads."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "plain", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    seen, begun = 0, time.perf_counter()
    while seen < records:
        message = consumer.poll(1.0)
        if message is None:
            continue
        row = json.loads(message.value() or b"")
        datetime.fromisoformat(row["ts"])
        seen += 1
    taken = time.perf_counter() - begun
    consumer.close()
    return records / taken


def into_log(db: ms.Database, address: str, topic: str, records: int, view: str = "") -> float:
    """Records in a second from the topic into the log, and through a view if there is one."""
    with_options = (
        f"WITH (connector = 'kafka', brokers = '{address}', topic = '{topic}', format = 'json')"
    )
    name = f"trades_{view or 'log'}"
    db.execute(f"CREATE SOURCE {name} ({COLUMNS}) {with_options}")
    begun = time.perf_counter()
    if view:
        db.execute(WINDOWS.format(name=view, source=name))
    while rows_of(db, name) < records:
        time.sleep(0.01)
    if view:
        db.wait_for(view, timeout=3600)
        total = db.query(f"SELECT SUM(n) FROM {view}").fetchall()[0][0]
        if total != records:
            raise AssertionError(f"{total} of {records} records are in the view")
    taken = time.perf_counter() - begun
    db.execute(f"DROP {'SOURCE' if not view else 'MATERIALIZED VIEW'} {view or name}")
    if view:
        db.execute(f"DROP SOURCE {name}")
    return records / taken


SPARK = """
import sys, tempfile, time
from pyspark.sql import SparkSession, functions as F
address, jars, records = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars)
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR").getOrCreate())
def run(name):
    begun = time.perf_counter()
    values = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
        .option("subscribe", "backlog").option("startingOffsets", "earliest").load())
    columns = "symbol STRING, price DOUBLE, qty BIGINT, ts TIMESTAMP"
    rows = values.select(F.from_json(F.col("value").cast("string"), columns).alias("r"))
    view = (rows.select("r.*").groupBy("symbol", F.window("ts", "1 minute"))
        .agg(F.count("*").alias("n"), F.sum("qty").alias("volume"), F.max("price").alias("high")))
    view.writeStream.outputMode("complete").format("memory").queryName(name).option(
        "checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start(
        ).awaitTermination()
    total = spark.sql(f"SELECT SUM(n) FROM {name}").collect()[0][0]
    assert total == int(records), total
    return int(records) / (time.perf_counter() - begun)
run("warm")
print("found", run("windows"))
"""


def plain_spark(address: str, jars: list[str], records: int) -> float:
    """Records in a second through Spark's own source and the same windows; the second run."""
    command = [sys.executable, "-W", "ignore", "-c", SPARK, address, ",".join(jars), str(records)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(said.rpartition("found ")[2])


def rows_of(db: ms.Database, name: str) -> int:
    """How many rows the connector of a source has delivered."""
    for each in db.query("SHOW CONNECTORS").to_pylist():
        if each["name"] == name:
            if each["error"]:
                raise AssertionError(each["error"])
            return int(each["rows"])
    return 0


def latency(address: str) -> dict[str, float]:
    """Milliseconds from produce to the callback of a windowed view, one record at a time."""
    create(address, "pings", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    came = threading.Event()

    def take(_: ChangeBatch) -> None:
        came.set()

    times = []
    with ms.open() as db:
        db.execute(
            f"CREATE SOURCE live ({COLUMNS}) WITH (connector = 'kafka', brokers = '{address}', "
            "topic = 'pings')"
        )
        db.execute(WINDOWS.format(name="windows", source="live"))
        db.wait_for("windows", timeout=300)
        db.subscribe_callback("SELECT * FROM windows", take)
        for number in range(WARM + PINGS):
            came.clear()
            sent = time.perf_counter()
            producer.produce("pings", record(number))
            producer.poll(0)
            if not came.wait(60):
                raise AssertionError("no change came")
            times.append((time.perf_counter() - sent) * 1000)
            time.sleep(0.002)
    measured = times[WARM:]
    cuts = statistics.quantiles(measured, n=100)
    return {"p50": cuts[49], "p99": cuts[98]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--only", default="latency,backlog")
    given = parser.parse_args()
    tool = broker_tool()
    if not tool.is_there():
        sys.exit(tool.HOW)
    table = Table(title=f"Kafka, {datetime.now(UTC):%Y-%m-%d}")
    for column in ("work", "found", "must reach"):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as folder:
        broker = tool.Broker(Path(folder))
        broker.start()
        try:
            if "latency" in given.only:
                found = latency(broker.address)
                text = f"p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms"
                table.add_row("produce -> windowed view -> callback", text, "p50 <= 10 ms")
            if "backlog" in given.only:
                backlog(tool, broker.address, given.records, table.add_row)
        finally:
            broker.kill()
    Console().print(table)


def backlog(tool: Any, address: str, records: int, row: Callable[..., None]) -> None:  # noqa: ANN401
    """One topic, read by a plain consumer, by plain Spark, into the log, and through a view."""
    create(address, "backlog", PARTITIONS)
    fill(address, "backlog", records)
    plain = plain_consumer(address, "backlog", records)
    row(f"plain consumer, json.loads, {records:,} records", f"{plain:,.0f}/s", "")
    jars = tool.spark_source()
    spark = plain_spark(address, jars, records) if jars else 0.0
    row("plain Spark, the same windows", f"{spark:,.0f}/s" if jars else "cannot be resolved", "")
    with ms.open() as db:
        log = into_log(db, address, "backlog", records)
        row("Kafka -> log", f"{log:,.0f}/s, {log / plain:.1f}x the plain consumer", "")
        into_log(db, address, "backlog", records, "warm")  # as the other Spark has run it before
        view = into_log(db, address, "backlog", records, "windows")
        text = f"{view:,.0f}/s, {view / plain:.1f}x the plain consumer"
        if jars:
            text += f", {view / spark:.0%} of plain Spark"
        row("Kafka -> log -> windowed view", text, ">= 60% of plain Spark, >= 5x the consumer")


if __name__ == "__main__":
    main()
