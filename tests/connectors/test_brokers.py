"""Redis, MQTT, NATS and WebSocket against real servers: delivery, failures, restarts, kills."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from websockets.sync.server import serve as serve_websocket

import millstream as ms
from millstream.connectors import needs
from millstream.errors import ConnectorError, ConnectorFailedError, Error, InvalidOptionError
from millstream.testing import TIMEOUT, database, wait_until
from millstream.testing.child import Child
from millstream.testing.connectors import (
    TABLE,
    SinkScenario,
    SourceScenario,
    check_sink,
    check_source,
)

PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """A server on a free port, which can be killed and started again."""

    def __init__(self, program, folder, arguments):
        self.path = shutil.which(program, path=PLACES)
        if self.path is None:
            pytest.skip(f"{program} is missing: make brokers")
        self.port, self.folder = free_port(), folder
        self._arguments = arguments(self.port, folder)
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            [self.path, *self._arguments], cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers, "the server")

    def _answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, how=signal.SIGTERM):
        self._process.send_signal(how)
        self._process.wait(30)

    def restart(self):
        self.stop()
        self.start()


def serve(factory, program, arguments):
    server = Server(program, factory.mktemp(program), arguments)
    yield server
    server.stop()


# ---- Redis


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    yield from serve(
        tmp_path_factory,
        "redis-server",
        lambda port, folder: ["--port", str(port), "--dir", str(folder), "--appendonly", "yes"],
    )


@pytest.fixture
def redis(redis_server):
    with needs("redis", "redis").Redis(port=redis_server.port) as client:
        client.flushall()
        yield client


def at(server, **options):
    url = f"url = 'redis://127.0.0.1:{server.port}/0', retry_delay = '1 ms'"
    return ", ".join([url, *(f"{name} = '{value}'" for name, value in options.items())])


@pytest.mark.crash
def test_redis_source(redis, redis_server, tmp_path):
    def produce(numbers):
        for number in numbers:
            redis.xadd("s", {"data": json.dumps({"id": number, "v": f"v{number}"})})

    scenario = SourceScenario(
        create="CREATE SOURCE k (id BIGINT, v VARCHAR) WITH (connector = 'redis', "
        f"{at(redis_server, stream='s')})",
        name="k",
        produce=produce,
        row=lambda n: (n, f"v{n}"),
        poison=lambda: redis.xadd("s", {"data": "{poison"}),
        restart=redis_server.restart,
    )
    check_source(scenario, tmp_path / "db")


def test_redis_fields_and_ids(redis, redis_server):
    redis.xadd("s", {"n": "1", "price": "1.5", "at": "2026-01-31T12:00:00Z"})
    redis.xadd("s", {"n": "x"})
    redis.xadd("s", {"n": "2", "other": "!"})
    create = (
        "CREATE SOURCE k (n INT NOT NULL, price DECIMAL(9, 2), at TIMESTAMP, id VARCHAR) WITH "
        f"(connector = 'redis', {at(redis_server, stream='s', format='fields', id_column='id')})"
    )
    with database(create) as db:
        wait_until(lambda: db.query("SELECT COUNT(*) FROM k").fetchall() == [(2,)])
        rows = db.query("SELECT n, price, id FROM k ORDER BY n").fetchall()
        ids = [each.decode() for each, _ in redis.xrange("s")]
        assert [(n, str(price), at) for n, price, at in rows] == [
            (1, "1.50", ids[0]),
            (2, "None", ids[2]),
        ]
        ((reason, origin),) = db.query("SELECT reason, origin FROM k_dead_letters").fetchall()
        assert reason == "expected INTEGER, got text 'x'"
        assert origin == f"s@{ids[1]}"


def test_redis_what_was_trimmed_is_reported(redis, redis_server, tmp_path):
    create = (
        "CREATE SOURCE k (n INT) WITH (connector = 'redis', "
        f"{at(redis_server, stream='s', start='latest')})"
    )
    redis.xadd("s", {"data": '{"n": 0}'})  # before it begins
    with database(create, path=tmp_path / "db") as db:
        wait_until(lambda: states(db) == {"k": "running"})
        wait_until(lambda: db.query("SHOW CONNECTORS").to_pylist()[0]["lag"] == 0)
        redis.xadd("s", {"data": '{"n": 1}'})
        wait_until(lambda: db.query("SELECT * FROM k").fetchall() == [(1,)])
    redis.xadd("s", {"data": '{"n": 2}'})
    redis.xadd("s", {"data": '{"n": 3}'})
    redis.xtrim("s", maxlen=1, approximate=False)
    with ms.open(tmp_path / "db") as db:
        wait_until(lambda: db.query("SELECT * FROM k").fetchall() == [(1,), (3,)])
        ((reason,),) = db.query("SELECT reason FROM k_dead_letters").fetchall()
        assert "deleted before they were read" in reason


def states(db):
    return {each["name"]: each["state"] for each in db.query("SHOW CONNECTORS").to_pylist()}


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_redis_sink(redis, redis_server, tmp_path, mode):
    where = {"stream": "out"} if mode == "append" else {"prefix": "item:"}

    def stored():
        if mode == "upsert":
            texts = [redis.get(key) for key in redis.scan_iter("item:*")]
            found = [json.loads(text) for text in texts if text is not None]  # since the scan
        else:
            changes = [json.loads(fields[b"data"]) for _, fields in redis.xrange("out")]
            found = replayed(changes)
        return [(each["id"], each["v"]) for each in found]

    scenario = SinkScenario(
        create=f"CREATE SINK s FROM items WITH (connector = 'redis', mode = '{mode}', "
        f"{at(redis_server, **where)})",
        name="s",
        stored=stored,
        restart=redis_server.restart,
    )
    check_sink(scenario, tmp_path / "db")


def replayed(changes):
    """What changes add up to; those that are void are left out."""
    rows = Counter()
    for each in changes:
        if each["op"] == "reset":
            rows.clear()
            continue
        if each["op"] != "delete":
            rows[json.dumps(each["row"])] += 1
        gone = each.get("before") if each["op"] == "update" else each["row"]
        if each["op"] != "insert":
            rows[json.dumps(gone)] -= 1
    assert min(rows.values(), default=0) >= 0
    return [json.loads(row) for row in rows.elements()]


def test_redis_wrong_options(redis, redis_server):
    redis.set("text", "x")
    with database() as db:
        for options, error, part in [
            ("url = 'redis://127.0.0.1:1/0', stream = 's'", ConnectorError, "cannot connect"),
            ("url = 'nothing', stream = 's'", ConnectorFailedError, "cannot connect"),
            (at(redis_server, stream="text"), ConnectorError, "not a stream"),
            (at(redis_server, stream="s", id_column="nn"), InvalidOptionError, "no VARCHAR column"),
        ]:
            with pytest.raises(error, match=part):
                db.execute(f"CREATE SOURCE k (n INT) WITH (connector = 'redis', {options})")
        with pytest.raises(Error, match="strem"):
            db.execute(
                f"CREATE SOURCE k (n INT) WITH (connector='redis', {at(redis_server, strem='s')})"
            )
        db.execute(TABLE)
        with pytest.raises(ConnectorError, match="text is a string, not a stream"):
            options = at(redis_server, stream="text")
            db.execute(f"CREATE SINK o FROM items WITH (connector = 'redis', {options})")
        with pytest.raises(Error, match="prefix is missing"):
            db.execute(
                "CREATE SINK o FROM items WITH (connector = 'redis', mode = 'upsert', "
                f"{at(redis_server)})"
            )


# ---- NATS


class Nats:
    """A client for the tests, with a loop of its own."""

    def __init__(self, port):
        self._loop = asyncio.new_event_loop()
        self._port = port
        self.connect()

    def connect(self):
        self._client = self.run(needs("nats", "nats").connect(f"nats://127.0.0.1:{self._port}"))
        self.stream = self._client.jetstream()

    def restart(self, server):
        self.run(self._client.close())
        server.restart()
        self.connect()
        wait_until(self._has_streams, "the streams are there again")

    def _has_streams(self):
        with contextlib.suppress(needs("nats", "nats").errors.Error):
            return self.run(self.stream.streams_info())

    def run(self, work):
        return self._loop.run_until_complete(work)

    def publish(self, subject, text):
        self.run(self.stream.publish(subject, text.encode()))

    def messages(self, stream):
        state = self.run(self.stream.stream_info(stream)).state
        numbers = range(state.first_seq, state.last_seq + 1) if state.messages else ()
        return [json.loads(self.run(self.stream.get_msg(stream, n)).data) for n in numbers]

    def close(self):
        self.run(self._client.close())
        self._loop.close()


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory):
    yield from serve(
        tmp_path_factory,
        "nats-server",
        lambda port, folder: ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)],
    )


@pytest.fixture
def nats(nats_server):
    client = Nats(nats_server.port)
    for each in client.run(client.stream.streams_info()):
        client.run(client.stream.delete_stream(each.config.name))
    client.run(client.stream.add_stream(name="orders", subjects=["orders.>", "changes"]))
    yield client
    client.close()


@pytest.mark.crash
def test_nats_source(nats, nats_server, tmp_path):
    def produce(numbers):
        for number in numbers:
            nats.publish("orders.eu", json.dumps({"id": number, "v": f"v{number}"}))

    scenario = SourceScenario(
        create="CREATE SOURCE k (id BIGINT, v VARCHAR, subject VARCHAR) WITH (connector = 'nats', "
        f"url = 'nats://127.0.0.1:{nats_server.port}', subject = 'orders.*', "
        "subject_column = 'subject', retry_delay = '1 ms')",
        name="k",
        produce=produce,
        row=lambda n: (n, f"v{n}", "orders.eu"),
        poison=lambda: nats.publish("orders.eu", "[]"),
        restart=lambda: nats.restart(nats_server),
    )
    check_source(scenario, tmp_path / "db")


@pytest.mark.crash
def test_nats_sink(nats, nats_server, tmp_path):
    def stored():
        return [(each["id"], each["v"]) for each in replayed(nats.messages("orders"))]

    scenario = SinkScenario(
        create="CREATE SINK s FROM items WITH (connector = 'nats', subject = 'changes', "
        f"url = 'nats://127.0.0.1:{nats_server.port}', retry_delay = '1 ms')",
        name="s",
        stored=stored,
        restart=lambda: nats.restart(nats_server),
    )
    check_sink(scenario, tmp_path / "db")


def test_nats_wrong_options(nats, nats_server):
    url = f"url = 'nats://127.0.0.1:{nats_server.port}'"
    with database() as db:
        for options, error, part in [
            ("url = 'nats://127.0.0.1:1', subject = 's'", ConnectorError, "cannot connect"),
            (f"{url}, subject = 'nobody'", ConnectorFailedError, "no stream has 'nobody'"),
            (f"{url}, subject = 's', stream = 'x'", ConnectorFailedError, "no stream 'x'"),
        ]:
            with pytest.raises(error, match=part):
                db.execute(f"CREATE SOURCE k (n INT) WITH (connector = 'nats', {options})")


# ---- MQTT


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    def arguments(port, folder):
        file = folder / "mosquitto.conf"
        file.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\nuser root\n"
        )
        return ["-c", str(file)]

    yield from serve(tmp_path_factory, "mosquitto", arguments)


@pytest.fixture
def mqtt(mosquitto):
    paho = needs("paho.mqtt.client", "mqtt")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", mosquitto.port)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def publish(client, topic, *texts):
    for sent in [client.publish(topic, text, qos=1) for text in texts]:
        sent.wait_for_publish(TIMEOUT)


@pytest.mark.crash
def test_mqtt_source_loses_nothing(mqtt, mosquitto, tmp_path):
    """At least once: what was committed and not acknowledged at a kill comes again."""
    create = (
        "CREATE SOURCE k (n BIGINT, topic VARCHAR) WITH (connector = 'mqtt', host = '127.0.0.1', "
        f"port = {mosquitto.port}, topic = 'sensors/#', topic_column = 'topic', "
        "retry_delay = '1 ms')"
    )
    made = 0
    with database(create, path=tmp_path / "db") as db:
        wait_until(lambda: states(db) == {"k": "running"})
        publish(mqtt, "sensors/a", *(json.dumps({"n": n}) for n in range(50)), "{poison")
        made = 50
        wait_until(lambda: db.query("SELECT COUNT(*) FROM k").fetchall() == [(50,)])
        assert db.query("SELECT DISTINCT topic FROM k").fetchall() == [("sensors/a",)]
        wait_until(lambda: db.query("SELECT COUNT(*) FROM k_dead_letters").fetchall() == [(1,)])
    for _ in range(2):
        child = Child(tmp_path / "db")
        publish(mqtt, "sensors/b", *(json.dumps({"n": n}) for n in range(made, made + 200)))
        wait_until(lambda: child.execute("SELECT COUNT(*) FROM k")[0][0] > made + 10)
        child.kill()
        made += 200
    publish(mqtt, "sensors/b", json.dumps({"n": made}))  # while nobody is connected
    with ms.open(tmp_path / "db") as db:
        count = "SELECT COUNT(DISTINCT n) FROM k"
        wait_until(lambda: db.query(count).fetchall() == [(made + 1,)])


def test_mqtt_sink(mqtt, mosquitto):
    found = []
    mqtt.on_message = lambda *given: found.append(json.loads(given[2].payload))
    mqtt.subscribe("changes", qos=1)
    create = (
        "CREATE SINK s FROM items WITH (connector = 'mqtt', host = '127.0.0.1', "
        f"port = {mosquitto.port}, topic = 'changes', retry_delay = '1 ms')"
    )
    with database(TABLE, "INSERT INTO items VALUES (1, 'a'), (2, 'b')", create) as db:
        db.execute("UPDATE items SET v = 'c' WHERE id = 1; DELETE FROM items WHERE id = 2")
        db.execute("INSERT INTO items VALUES (3, 'd')")
        wanted = [{"id": 1, "v": "c"}, {"id": 3, "v": "d"}]
        wait_until(
            lambda: sorted(replayed(list(found)), key=lambda row: row["id"]) == wanted,
            lambda: str(found),
        )


def test_mqtt_wrong_options(mosquitto):
    with database(TABLE) as db:
        with pytest.raises(ConnectorError, match="cannot connect"):
            db.execute(
                "CREATE SOURCE k (n INT) WITH (connector = 'mqtt', host = '127.0.0.1', port = 1, "
                "topic = 't')"
            )
        at = f"connector = 'mqtt', host = '127.0.0.1', port = {mosquitto.port}"
        for statement, topic in (
            ("CREATE SINK s FROM items", "a/#"),
            ("CREATE SOURCE k (n INT)", "a/#/b"),
            ("CREATE SOURCE k (n INT)", "a+/b"),
            ("CREATE SOURCE k (n INT)", ""),
        ):
            with pytest.raises(InvalidOptionError, match="topic is"):
                db.execute(f"{statement} WITH ({at}, topic = '{topic}')")


# ---- WebSocket


@pytest.fixture
def exchange():
    """A WebSocket server: sends trades to who subscribes, and notes what others send."""
    received, clients = [], []

    def handle(connection):
        clients.append(connection)
        for message in connection:
            received.append(message)
            if message == "subscribe":
                connection.send(json.dumps({"answer": "subscribed"}))

    with serve_websocket(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield SimpleNamespace(
            port=server.socket.getsockname()[1], received=received, clients=clients
        )
        server.shutdown()
        thread.join(30)


def test_websocket_source(exchange):
    create = (
        "CREATE SOURCE k (n INT, s VARCHAR) WITH (connector = 'websocket', send = 'subscribe', "
        f"url = 'ws://127.0.0.1:{exchange.port}/', path = 'data.trades', retry_delay = '1 ms')"
    )
    with database(create) as db:
        wait_until(lambda: "subscribe" in exchange.received)
        exchange.clients[-1].send(json.dumps({"data": {"trades": [{"n": 1}, {"n": 2, "s": "é"}]}}))
        exchange.clients[-1].send(json.dumps({"data": {"trades": {"n": "x"}}}))
        wait_until(lambda: db.query("SELECT * FROM k").fetchall() == [(1, None), (2, "é")])
        wait_until(lambda: db.query("SELECT COUNT(*) FROM k_dead_letters").fetchall() == [(1,)])
        count = len(exchange.received)
        exchange.clients[-1].close()
        wait_until(lambda: len(exchange.received) > count)  # it has subscribed again
        exchange.clients[-1].send(json.dumps({"data": {"trades": [{"n": 3}]}}))
        wait_until(lambda: db.query("SELECT MAX(n) FROM k").fetchall() == [(3,)])


def test_websocket_sink(exchange):
    create = (
        "CREATE SINK s FROM items WITH (connector = 'websocket', "
        f"url = 'ws://127.0.0.1:{exchange.port}/', retry_delay = '1 ms')"
    )
    with database(TABLE, "INSERT INTO items VALUES (1, 'a')", create) as db:
        db.execute("UPDATE items SET v = 'b' WHERE id = 1")
        wait_until(
            lambda: (
                replayed([json.loads(each) for each in exchange.received]) == [{"id": 1, "v": "b"}]
            )
        )


def test_websocket_wrong_options():
    with database() as db:
        for url, error in [("ws://127.0.0.1:1/", ConnectorError), ("http://x/", Error)]:
            with pytest.raises(error, match="cannot connect"):
                db.execute(f"CREATE SOURCE k (n INT) WITH (connector = 'websocket', url = '{url}')")
