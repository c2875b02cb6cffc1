"""Kafka: kills, failures and restarts on both sides lose nothing and repeat nothing."""

import json

import pytest

from millstream.testing import database, wait_until
from millstream.testing.connectors import SinkScenario, SourceScenario, check_sink, check_source

pytestmark = pytest.mark.crash


def as_json(number):
    return json.dumps({"id": number, "v": f"v{number}"}).encode()


@pytest.mark.parametrize("kind", ["SOURCE", "TABLE"])
def test_source(kafka, topic, tmp_path, kind):
    columns = "(id BIGINT PRIMARY KEY, v VARCHAR)" if kind == "TABLE" else "(id BIGINT, v VARCHAR)"
    scenario = SourceScenario(
        create=f"CREATE {kind} k {columns} WITH (connector = 'kafka', "
        f"brokers = '{kafka.address}', topic = '{topic}', format = 'json', retry_delay = '1 ms')",
        name="k",
        produce=lambda numbers: kafka.produce(topic, map(as_json, numbers)),
        row=lambda n: (n, f"v{n}"),
        poison=lambda: kafka.produce(topic, [b"{poison"]),
    )
    check_source(scenario, tmp_path / "db", kills=2 if kind == "SOURCE" else 1)


@pytest.mark.parametrize("mode", ["upsert", "append", "debezium"])
def test_sink(kafka, topic, tmp_path, mode):
    def stored():
        if mode == "upsert":
            return [(each["id"], each["v"]) for each in kafka.table(topic).values()]
        if mode == "debezium":
            return debezium_rows(kafka.messages(topic))
        values = [json.loads(message.value()) for message in kafka.messages(topic)]
        return [(each["id"], each["v"]) for each in values]

    scenario = SinkScenario(
        create=f"CREATE SINK s FROM items WITH (connector = 'kafka', mode = '{mode}', "
        f"brokers = '{kafka.address}', topic = '{topic}', retry_delay = '1 ms')",
        name="s",
        stored=stored,
        appends=mode == "append",
    )
    check_sink(scenario, tmp_path / "db", kills=2 if mode == "upsert" else 1)


def debezium_rows(messages):
    """The rows after all envelopes; each change must fit what was there."""
    rows = {}
    for message in messages:
        if message.value() is None:
            continue
        found = json.loads(message.value())
        before, after = found["before"], found["after"]
        if before is not None:
            assert rows.pop(before["id"]) == before
        if after is not None:
            assert after["id"] not in rows
            rows[after["id"]] = after
    return [(each["id"], each["v"]) for each in rows.values()]


def test_the_broker_is_killed_and_comes_back(kafka, tmp_path):
    """Both ways at once: topic -> table -> topic, while the broker is away for a time."""
    kafka.create("in_restart", 2)
    kafka.create("out_restart", 2)
    options = f"connector = 'kafka', brokers = '{kafka.address}', retry_max_delay = '50 ms'"
    with database(path=tmp_path / "db") as db:
        db.execute(
            "CREATE TABLE items (id BIGINT PRIMARY KEY, v VARCHAR) "
            f"WITH ({options}, topic = 'in_restart')"
        )
        db.execute(f"CREATE SINK s FROM items WITH ({options}, topic = 'out_restart')")
        kafka.produce("in_restart", map(as_json, range(50)))
        wait_until(lambda: len(kafka.table("out_restart")) == 50, lambda: shown(db))
        kafka.broker.kill()
        kafka.broker.start()
        kafka.produce("in_restart", map(as_json, range(50, 100)))
        wait_until(lambda: len(kafka.table("out_restart")) == 100, lambda: shown(db))
        assert db.query("SELECT COUNT(*) FROM items").fetchall() == [(100,)]
    values = [json.loads(message.value())["id"] for message in kafka.messages("out_restart")]
    assert sorted(values) == list(range(100))


def shown(db):
    return str(db.query("SHOW CONNECTORS").to_pylist())
