"""Kafka: kills, failures and restarts on both sides lose nothing and repeat nothing."""

import json

import pytest

from millstream.testing.connectors import SinkScenario, SourceScenario, check_sink, check_source

pytestmark = pytest.mark.crash


def as_json(number):
    return json.dumps({"id": number, "v": f"v{number}"}).encode()


@pytest.mark.parametrize("kind", ["SOURCE", "TABLE"])
def test_source(kafka, topic, tmp_path, kind):
    columns = "(id BIGINT PRIMARY KEY, v VARCHAR)" if kind == "TABLE" else "(id BIGINT, v VARCHAR)"
    scenario = SourceScenario(
        create=f"CREATE {kind} k {columns} WITH (connector = 'kafka', "
        f"brokers = '{kafka.address}', topic = '{topic}', format = 'json', retry_delay = '1 ms', "
        "retry_max_delay = '100 ms', retry_limit = 1000)",
        name="k",
        produce=lambda numbers: kafka.produce(topic, map(as_json, numbers)),
        row=lambda n: (n, f"v{n}"),
        poison=lambda: kafka.produce(topic, [b"{poison"]),
        restart=kafka.restart if kind == "SOURCE" else None,
    )
    check_source(scenario, tmp_path / "db")


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
        f"brokers = '{kafka.address}', topic = '{topic}', retry_delay = '1 ms', "
        "retry_max_delay = '100 ms', retry_limit = 1000)",
        name="s",
        stored=stored,
        appends=mode == "append",
        restart=kafka.restart if mode == "upsert" else None,
    )
    check_sink(scenario, tmp_path / "db")


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
