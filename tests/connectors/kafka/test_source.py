"""The source of Kafka: topics, starts, formats, metadata, what is rejected, what is lost."""

import io
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer

from millstream.connectors.sinks.kafka import KafkaSink
from millstream.connectors.sources.kafka import KafkaSource
from millstream.errors import ConnectorError, Error
from millstream.testing import database, wait_until
from millstream.testing.databases import engine_of

from .outside import Schemas, registry

ROW = b'{"id": %d, "v": "a"}'


@pytest.fixture(scope="module")
def db():
    with database() as opened:
        yield opened


def with_options(kafka, **options):
    given = {"connector": "kafka", "brokers": kafka.address, "retry_delay": "1 ms", **options}
    parts = (f"{name} = '{value}'" for name, value in given.items())
    return f"WITH ({', '.join(parts)})"


def expect(db, name, rows, columns="*"):
    def found():
        return sorted(db.query(f"SELECT {columns} FROM {name}").fetchall(), key=repr)

    expected = sorted(rows, key=repr)
    wait_until(lambda: found() == expected, lambda: f"{expected}: {found()}; {connector(db, name)}")


def connector(db, name):
    shown = db.query("SHOW CONNECTORS").to_pylist()
    return next(each for each in shown if each["name"] == name)


def letters(db, name, count):
    query = f"SELECT reason, origin, payload FROM {name}_dead_letters"
    wait_until(lambda: len(db.query(query).fetchall()) >= count, f"{count} dead letters")
    found = db.query(query).fetchall()
    assert len(found) == count
    return found


def state(db, name, expected):
    wait_until(
        lambda: connector(db, name)["state"] == expected,
        lambda: f"{expected}: {connector(db, name)}",
    )
    return connector(db, name)["error"] or ""


# ---- topics and starts


def test_several_topics_and_new_partitions(kafka, db):
    for name in ("many_a", "many_b"):
        kafka.create(name, 1)
    kafka.produce("many_a", [ROW % 1])
    kafka.produce("many_b", [ROW % 2])
    columns = "(id BIGINT, kafka_topic VARCHAR)"
    db.execute(f"CREATE SOURCE listed {columns} " + with_options(kafka, topic="many_a, many_b"))
    options = with_options(kafka, topics_pattern="many_.*", discover_every="10 ms")
    db.execute(f"CREATE SOURCE matched {columns} {options}")
    rows = [(1, "many_a"), (2, "many_b")]
    expect(db, "listed", rows)
    expect(db, "matched", rows)
    kafka.grow("many_a", 3)
    kafka.create("many_c", 1)
    kafka.produce("many_c", [ROW % 3])
    kafka.produce("many_a", [ROW % 4], partition=2)
    expect(db, "matched", [*rows, (3, "many_c"), (4, "many_a")])


def test_a_backlog_is_read_ahead(kafka, db):
    """What was fetched ahead is neither lost nor read twice: by a pause, nor by new partitions."""
    kafka.create("ahead", 2)
    for partition in (0, 1):
        numbers = range(partition * 20_000, (partition + 1) * 20_000)
        kafka.produce("ahead", [ROW % n for n in numbers], partition=partition)
    options = with_options(kafka, topic="ahead", batch_messages=1100, discover_every="20 ms")
    db.execute(f"CREATE SOURCE ahead (id BIGINT, kafka_partition INT) {options}")
    kafka.grow("ahead", 3)
    kafka.produce("ahead", [b"{poison", *(ROW % n for n in range(40_000, 43_000))], partition=2)
    for rows in (3000, 15_000, 25_000):
        wait_until(lambda: connector(db, "ahead")["rows"] >= rows)
        db.execute("ALTER SOURCE ahead PAUSE")
        db.execute("ALTER SOURCE ahead RESUME")
    query = "SELECT COUNT(*), COUNT(DISTINCT id), MAX(id) FROM ahead"
    wait_until(
        lambda: db.query(query).fetchall() == [(43_000, 43_000, 42_999)],
        lambda: f"{db.query(query).fetchall()}, {connector(db, 'ahead')}",
    )
    found = db.query("SELECT kafka_partition, id FROM ahead").fetchall()
    assert sorted(found, key=lambda row: row[0]) == sorted(found)  # each partition in its order
    letters(db, "ahead", 1)


def test_starts(kafka, topic, db):
    before = datetime.now(UTC) - timedelta(hours=1)
    for number in range(4):
        kafka.producer.produce(
            topic,
            ROW % number,
            partition=0,
            timestamp=int((before + timedelta(minutes=number)).timestamp() * 1000),
        )
    kafka.producer.flush()
    create = "CREATE SOURCE {} (id BIGINT) "
    middle = (before + timedelta(seconds=90)).isoformat()
    starts = {"s_latest": "latest", "s_time": middle, "s_offset": '{"0": 3}', "s_all": "earliest"}
    for name, start in starts.items():
        db.execute(create.format(name) + with_options(kafka, topic=topic, start=start))
    expect(db, "s_all", [(n,) for n in range(4)])
    expect(db, "s_time", [(2,), (3,)])
    expect(db, "s_offset", [(3,)])
    stored = engine_of(db).connections["s_latest"].stored
    wait_until(lambda: stored.value is not None, "its start is in the log")
    kafka.produce(topic, [ROW % 9], partition=0)
    expect(db, "s_latest", [(9,)])


def test_a_transaction_that_is_aborted_is_not_read(kafka, topic, db):
    producer = Producer({**kafka.settings, "transactional.id": f"of-{topic}"})
    producer.init_transactions(60)
    for number, end in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, ROW % number)
        producer.flush()
        end(60)
    db.execute(f"CREATE SOURCE committed (id BIGINT) {with_options(kafka, topic=topic)}")
    expect(db, "committed", [(2,)])


# ---- what else a message has


def test_metadata(kafka, topic, db):
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    kafka.producer.produce(
        topic,
        b"one",
        b"k",
        partition=1,
        timestamp=int(noon.timestamp() * 1000),
        headers=[("h", b"x"), ("n", None)],
    )
    kafka.produce(topic, [b"two"], key=b"\xff", partition=1)
    db.execute(
        "CREATE SOURCE meta (kafka_key VARCHAR, line VARCHAR, at TIMESTAMP, kafka_partition INT, "
        "kafka_offset BIGINT, kafka_topic VARCHAR, kafka_headers MAP<VARCHAR, VARCHAR>) "
        + with_options(kafka, topic=topic, format="raw", timestamp_column="at")
    )
    columns = "kafka_key, line, kafka_partition, kafka_offset, kafka_topic, kafka_headers"
    expect(db, "meta", [("k", "one", 1, 0, topic, {"h": "x", "n": None})], columns)
    (at,) = db.query("SELECT at FROM meta").fetchall()[0]
    assert at.replace(tzinfo=UTC) == noon
    ((reason, origin, payload),) = letters(db, "meta", 1)
    assert "metadata" in reason
    assert (origin, payload) == (f"{topic}/1@1", b"two")


# ---- formats


def test_malformed_records_cost_only_themselves(kafka, topic, db):
    values = [ROW % 1, b"{", b'{"id": "x"}', b"\xff", ROW % 2, b'{"v": "no id"}']
    kafka.produce(topic, [*values, None], partition=0)
    db.execute(
        f"CREATE SOURCE poison (id BIGINT NOT NULL, v VARCHAR) {with_options(kafka, topic=topic)}"
    )
    expect(db, "poison", [(1, "a"), (2, "a")])
    found = letters(db, "poison", 5)
    assert sorted(origin for _, origin, _ in found) == [f"{topic}/0@{n}" for n in (1, 2, 3, 5, 6)]
    assert {payload for _, _, payload in found} == {b"{", b'{"id": "x"}', b"\xff", values[5], b""}


def test_csv_and_times_as_numbers(kafka, topic, db):
    kafka.produce(topic, [b"1;a,b;2026-01-31", b"x;y;z"])
    db.execute(
        "CREATE SOURCE lines (id BIGINT, v VARCHAR, day DATE) "
        + with_options(kafka, topic=topic, format="csv", delimiter=";")
    )
    day = datetime(2026, 1, 31).date()  # noqa: DTZ001
    expect(db, "lines", [(1, "a,b", day)])
    letters(db, "lines", 1)
    db.execute(
        "CREATE SOURCE lines_raw (line BINARY) "
        + with_options(kafka, topic=topic, format="raw", tombstones="null")
    )
    kafka.produce(topic, [None])
    expect(db, "lines_raw", [(b"1;a,b;2026-01-31",), (b"x;y;z",), (None,)])


def test_a_table_with_tombstones(kafka, topic, db):
    for key, value in [(1, ROW % 1), (2, ROW % 2), (1, b'{"id": 1, "v": "b"}'), (2, None)]:
        kafka.produce(topic, [value], key=str(key).encode(), partition=0)
    db.execute(
        "CREATE TABLE keyed (id BIGINT PRIMARY KEY, v VARCHAR, kafka_offset BIGINT) "
        + with_options(kafka, topic=topic)
    )
    expect(db, "keyed", [(1, "b", 2)])
    kafka.produce(topic, [None], key=b"x", partition=0)
    ((reason, _, _),) = letters(db, "keyed", 1)
    assert "BIGINT" in reason


USER = {
    "type": "record",
    "name": "user",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
    ],
}


def framed(number, schema, row):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def test_avro(kafka, topic, db):
    at = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    schemas = Schemas(login="Basic bWU6c2VjcmV0")
    number = schemas.register(f"{topic}-value", USER)
    newer = {**USER, "fields": [*USER["fields"], {"name": "more", "type": "int"}]}
    second = schemas.register("other", newer)
    row = {"id": 1, "name": "Ada", "at": at, "sum": Decimal("5.00")}
    kafka.produce(
        topic,
        [
            framed(number, USER, row),
            framed(second, newer, {**row, "id": 2, "name": None, "more": 7}),
            b"not avro",
            framed(99, USER, row),
            framed(number, USER, row) + b"x",
        ],
    )
    with registry(schemas) as url:
        login = url.replace("http://", "http://me:secret@")
        db.execute(
            "CREATE SOURCE avro "
            + with_options(kafka, topic=topic, format="avro", schema_registry=login)
        )
        expect(db, "avro", [(1, "Ada"), (2, None)], "id, name")
        assert [str(each) for (each,) in db.query("SELECT sum FROM avro").fetchall()] == [
            "5.00"
        ] * 2
        reasons = " ".join(reason for reason, _, _ in letters(db, "avro", 3))
        assert "zero byte" in reasons
        assert "schema 99" in reasons
        assert "bytes are left" in reasons
        assert "secret" not in str(connector(db, "avro")) + str(
            db.query("SHOW CREATE SOURCE avro").fetchall()
        )
        assert (
            schemas.requests.count(f"/schemas/ids/{number}") <= 2
        )  # it is asked for once a client
        with pytest.raises(ConnectorError, match="401"):
            db.execute(
                "CREATE SOURCE no "
                + with_options(kafka, topic=topic, format="avro", schema_registry=url)
            )
        db.execute("DROP SOURCE avro")


# ---- errors


def refused(db, sql, kind=Error):
    with pytest.raises(kind) as raised:
        db.execute(sql)
    assert raised.value.hint
    return f"{raised.value.message} | {raised.value.hint}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "nowhere"}, "no topic 'nowhere'"),
        ({}, "topic or topics_pattern"),
        ({"topic": "t", "start": "yesterday"}, "start is 'yesterday'"),
        ({"topic": "t", "kafka.group.id": "g"}, "kafka.group.id cannot be set"),
        ({"topic": "t", "kafka.no.such": "1"}, "librdkafka does not take"),
        ({"topic": "t", "key_column": "k"}, "no column"),
        ({"topic": "t", "format": "debezium"}, "CREATE TABLE"),
        ({"topic": "t", "format": "xml"}, "format is 'xml'"),
        ({"topic": "t", "topcis": "t"}, "there is no option topcis"),
        ({"topic": "t", "format": "avro"}, "schema registry"),
        ({"topics_pattern": "("}, "no regular expression"),
    ],
)
def test_wrong_options(kafka, db, options, says):
    assert says in refused(db, "CREATE SOURCE wrong (id BIGINT) " + with_options(kafka, **options))


def test_login_and_encryption(kafka, topic, db):
    kafka.produce(topic, [ROW % 1])
    secure = {
        "brokers": kafka.broker.sasl_address,
        "topic": topic,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "reader",
        "kafka.sasl.password": "right",
        "kafka.ssl.ca.location": str(kafka.broker.certificate),
    }
    db.execute("CREATE SOURCE secure (id BIGINT) " + with_options(kafka, **secure))
    expect(db, "secure", [(1,)])
    assert "right" not in str(db.query("SHOW CREATE SOURCE secure").fetchall())
    wrong = with_options(kafka, **secure | {"kafka.sasl.password": "hunter2"})
    said = refused(db, f"CREATE SOURCE no (id BIGINT) {wrong}", ConnectorError)
    assert "login" in said
    assert "hunter2" not in said


def test_no_broker(kafka, db):
    wrong = with_options(kafka, brokers="127.0.0.1:1", topic="t")
    assert "no broker answers" in refused(
        db, f"CREATE SOURCE no (id BIGINT) {wrong}", ConnectorError
    )


def test_a_topic_that_is_made_anew(kafka, db):
    kafka.create("anew", 1)
    kafka.produce("anew", [ROW % n for n in range(3)])
    db.execute(f"CREATE SOURCE anew (id BIGINT) {with_options(kafka, topic='anew')}")
    expect(db, "anew", [(0,), (1,), (2,)])
    db.execute("ALTER SOURCE anew PAUSE")
    kafka.delete("anew")
    wait_until(lambda: "anew" not in kafka.admin.list_topics(timeout=10).topics, "it is gone")
    kafka.create("anew", 1)
    kafka.produce("anew", [ROW % 7])
    db.execute("ALTER SOURCE anew RESUME")
    assert "offset 3" in state(db, "anew", "failed")
    assert "on_lost" in connector(db, "anew")["error"]


# ---- Debezium


def envelope(op, before, after, **more):
    return json.dumps({"op": op, "before": before, "after": after, **more}).encode()


def test_debezium(kafka, topic, db):
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {
            "field": "sum",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
    ]
    after = {"type": "struct", "fields": fields, "field": "after"}
    wrapped = {
        "schema": {"type": "struct", "fields": [after]},
        "payload": {"op": "r", "after": {"id": 9, "at": 1_500_000, "sum": "AfQ="}},
    }
    plain = {"id": 1, "v": "a"}
    values = [
        envelope("c", None, plain),
        envelope("c", None, {"id": 2, "v": "b"}),
        envelope("u", {"id": 2, "v": "b"}, {"id": 3, "v": "b"}),  # another key
        envelope("u", None, {"id": 1, "v": "__debezium_unavailable_value"}),
        envelope("c", None, {"id": 4, "v": "c"}),
        envelope("d", {"id": 4, "v": "c"}, None),
        None,
        envelope("m", None, None),
        envelope("c", None, {"id": 5, "at": 17}),
        json.dumps(wrapped).encode(),
        b'{"no": "envelope"}',
    ]
    kafka.produce(topic, values, partition=0)
    db.execute(
        "CREATE TABLE cdc (id BIGINT PRIMARY KEY, v VARCHAR, at TIMESTAMP, sum DECIMAL(10, 2)) "
        + with_options(kafka, topic=topic, format="debezium")
    )
    letters(db, "cdc", 2)
    expect(db, "cdc", [(1, "a"), (3, "b"), (9, None)], "id, v")
    ((at, total),) = db.query("SELECT at, sum FROM cdc WHERE id = 9").fetchall()
    assert at.replace(tzinfo=UTC) == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert str(total) == "5.00"
    kafka.produce(topic, [envelope("t", None, None), envelope("c", None, plain)], partition=0)
    expect(db, "cdc", [(1, "a")], "id, v")


def test_debezium_in_avro(kafka, topic, db):
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "at",
                "type": [
                    "null",
                    {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
                ],
            },
            {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
            {
                "name": "sum",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    schemas = Schemas()
    of_value = schemas.register(f"{topic}-value", schema)
    of_key = schemas.register(f"{topic}-key", key)

    def send(op, before, after, number=0):
        value = framed(of_value, schema, {"op": op, "before": before, "after": after})
        kafka.produce(topic, [value], key=framed(of_key, key, {"id": number}), partition=0)

    first = {"id": 1, "at": 1_500_000, "day": 1, "sum": Decimal("1.25")}
    send("c", None, first)
    send("c", None, {**first, "id": 2})
    send("d", None, None, 2)  # without the row before: the key says which
    with registry(schemas) as url:
        options = {"format": "debezium-avro", "schema_registry": url}
        db.execute(
            "CREATE TABLE cdc_avro (id BIGINT PRIMARY KEY, at TIMESTAMP, day DATE, "
            f"sum DECIMAL(9, 2)) {with_options(kafka, topic=topic, **options)}"
        )
        expect(db, "cdc_avro", [(1, Decimal("1.25"))], "id, sum")
        ((at, day),) = db.query("SELECT at, day FROM cdc_avro").fetchall()
        assert (at.microsecond, day.isoformat()) == (500_000, "1970-01-02")
        db.execute("DROP TABLE cdc_avro")


def test_the_page_of_the_documentation(kafka):
    """Its statements run as they stand, but for the address."""
    page = (Path(__file__).parents[3] / "docs" / "connectors" / "kafka.md").read_text()
    (sql,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    for name in ("trades", "shop.public.accounts", "accounts"):
        kafka.create(name, 1)
    row = {"id": 1, "owner": "Ada", "balance": "12.50"}
    kafka.produce("shop.public.accounts", [envelope("c", None, row)])
    kafka.produce("trades", [b'{"symbol": "A", "price": 1, "qty": 2, "ts": "2026-01-01"}'])
    with database() as db:
        db.execute(sql.replace("localhost:9092", kafka.address))
        expect(
            db, "trades", [("A", 1.0, 2, 0, 0)], "symbol, price, qty, kafka_partition, kafka_offset"
        )
        wait_until(lambda: list(kafka.table("accounts").values()) == [row], "the sink has written")


def test_every_option_is_on_the_page():
    page = (Path(__file__).parents[3] / "docs" / "connectors" / "kafka.md").read_text()
    for connector_class in (KafkaSource, KafkaSink):
        for option in connector_class.options:
            assert f"`{option.name}" in page or option.name.startswith(("kafka.s", "schema_reg"))
