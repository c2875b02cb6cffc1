"""The sink of Kafka: what is written in which mode, what takes its place, what is refused."""

import io
import json

import fastavro
import pytest
from confluent_kafka import Producer

from millstream import ChangeBatch, Schema
from millstream.connectors import SinkBatch, SinkInput
from millstream.connectors.options import OF_SINKS, settings_of
from millstream.connectors.sinks.kafka import KafkaSink
from millstream.errors import Error, InvalidOptionError
from millstream.testing import database, wait_until
from millstream.testing.databases import engine_of

from .outside import Schemas, registry

TABLE = "CREATE TABLE items (id BIGINT PRIMARY KEY, v VARCHAR)"


@pytest.fixture
def db():
    with database(TABLE, "INSERT INTO items VALUES (1, 'a'), (2, 'b')") as opened:
        yield opened


def create(kafka, topic, name="s", **options):
    given = {"connector": "kafka", "brokers": kafka.address, "topic": topic, "retry_delay": "1 ms"}
    parts = (f"{key} = '{value}'" for key, value in {**given, **options}.items())
    return f"CREATE SINK {name} FROM items WITH ({', '.join(parts)})"


def connector(db, name="s"):
    shown = db.query("SHOW CONNECTORS").to_pylist()
    return next(each for each in shown if each["name"] == name)


def state(db, expected):
    wait_until(lambda: connector(db)["state"] == expected, lambda: f"{expected}: {connector(db)}")
    return connector(db)["error"] or ""


def expect_table(kafka, db, topic):
    rows = sorted(db.query("SELECT id, v FROM items").fetchall())

    def found():
        return sorted((each["id"], each["v"]) for each in kafka.table(topic).values())

    wait_until(lambda: found() == rows, lambda: f"{rows}: {found()}; {connector(db)}")


def test_keys_values_and_tombstones(kafka, topic, db):
    db.execute(create(kafka, topic, key_format="text"))
    expect_table(kafka, db, topic)
    db.execute("DELETE FROM items WHERE id = 1")
    expect_table(kafka, db, topic)
    assert {message.key() for message in kafka.messages(topic)} == {b"1", b"2"}
    last = [each for each in kafka.messages(topic) if each.key() == b"1"][-1]
    assert last.value() is None


@pytest.mark.parametrize("mode", ["upsert", "debezium"])
def test_a_new_snapshot_takes_the_place_of_what_was_there(kafka, topic, mode):
    schema = Schema.of(id="BIGINT NOT NULL", v="VARCHAR", key=("id",))
    given = {"brokers": kafka.address, "topic": topic, "mode": mode}
    settings = settings_of(given, (*KafkaSink.options, *OF_SINKS))
    sink = KafkaSink(settings, SinkInput("s", "items", schema, True, f"of_{topic}"))

    def store(token, *parts):
        """Write a snapshot in parts, as after a start; returns the token that was there."""
        writer = sink.open()
        before = writer.position()
        for number, rows in enumerate(parts, 1):
            changes = ChangeBatch.from_rows(schema, rows)
            changes.kind = "snapshot"
            done = number == len(parts)
            batch = SinkBatch(changes, number == 1, done, token if done else "")
            assert writer.write(batch) is done
        writer.close()
        return before

    assert store("one", [(1, "a"), (2, "b")], [(3, "c")]) is None
    writer = sink.open()  # what is not complete is not there
    changes = ChangeBatch.from_rows(schema, [(9, "x")])
    changes.kind = "snapshot"
    assert not writer.write(SinkBatch(changes, replaces=True, is_complete=False))
    writer.close()
    assert store("two", [(2, "b")], [(4, "d")]) == "one"
    if mode == "upsert":
        found = {(each["id"], each["v"]) for each in kafka.table(topic).values()}
        assert found == {(2, "b"), (4, "d")}
    else:
        values = [json.loads(each.value()) for each in kafka.messages(topic) if each.value()]
        gone = [each["before"]["id"] for each in values if each["op"] == "d"]
        assert sorted(gone) == [1, 3]
    assert store("three", [(5, "e")]) == "two"
    sink.drop()
    assert sink.open().position() is None


def test_avro_and_a_topic_that_is_created(kafka, db):
    schemas = Schemas()
    with registry(schemas) as url:
        options = {"format": "avro", "schema_registry": url, "create_topic": "3"}
        db.execute(create(kafka, "made_by_sink", **options))
        wait_until(lambda: len(kafka.messages("made_by_sink")) == 2, lambda: str(connector(db)))
        found = []
        for message in kafka.messages("made_by_sink"):
            for data in (message.key(), message.value()):
                schema = schemas.by_id[int.from_bytes(data[1:5], "big")]
                found.append(fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None))
        assert sorted(map(json.dumps, found)) == sorted(
            map(json.dumps, [{"id": 1}, {"id": 2}, {"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        )
        assert set(schemas.by_subject) == {"made_by_sink-value", "made_by_sink-key"}
        db.execute("DROP SINK s")


def test_settings_that_do_not_go_together_are_refused_at_create(kafka, topic, db):
    with pytest.raises(InvalidOptionError, match="acks"):
        db.execute(create(kafka, topic, **{"kafka.acks": "0"}))
    assert not db.query("SHOW SINKS").fetchall()


def test_what_changes_cannot_be_appended(kafka, topic, db):
    db.execute(create(kafka, topic, mode="append"))
    wait_until(lambda: len(kafka.messages(topic)) == 2, lambda: str(connector(db)))
    db.execute("UPDATE items SET v = 'c'")
    assert "only append" in state(db, "failed")
    assert db.query("SELECT COUNT(*) FROM items").fetchall() == [(2,)]


def test_another_process_writes_as_this_sink(kafka, topic, db):
    db.execute(create(kafka, topic))
    expect_table(kafka, db, topic)
    sink = engine_of(db).connections.id_of(engine_of(db).connections["s"].definition)
    other = Producer({**kafka.settings, "transactional.id": f"millstream-{sink}"})
    other.init_transactions(60)
    db.execute("INSERT INTO items VALUES (3, 'c')")
    assert "copy of this database" in state(db, "failed")
    db.execute("ALTER SINK s RESUME")
    expect_table(kafka, db, topic)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "nowhere"}, "no topic 'nowhere'"),
        ({"brokers": "127.0.0.1:1"}, "no broker answers"),
        ({"mode": "debezium", "format": "avro"}, "JSON"),
        ({"format": "avro"}, "schema registry"),
        ({"kafka.transactional.id": "x"}, "cannot be set"),
        ({"mode": "upsrt"}, "mode is 'upsrt'"),
    ],
)
def test_wrong_options(kafka, topic, db, options, says):
    with pytest.raises(Error) as raised:
        db.execute(create(kafka, **{"topic": topic, **options}))
    assert says in f"{raised.value.message} | {raised.value.hint}"


def test_upserts_need_a_key(kafka, topic, db):
    db.execute("CREATE SOURCE keyless (n BIGINT)")
    sql = create(kafka, topic, mode="upsert").replace("items", "keyless")
    with pytest.raises(Error, match="has no key"):
        db.execute(sql)
    db.execute(create(kafka, topic).replace("items", "keyless"))
    db.insert("keyless", [(7,)])
    wait_until(lambda: len(kafka.messages(topic)) == 1, lambda: str(connector(db)))
    (message,) = kafka.messages(topic)
    assert (message.key(), message.value()) == (None, b'{"n":7}')
