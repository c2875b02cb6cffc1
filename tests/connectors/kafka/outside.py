"""The world outside: what produces to topics, and what has read them as a reader of Kafka does."""

import contextlib
import http.server
import json
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

SECONDS = 60


class Outside:
    def __init__(self, broker):
        self.broker = broker
        self.address = broker.address
        self.settings = {"bootstrap.servers": broker.address, "log_level": 0}
        self.admin = AdminClient(self.settings)
        self.producer = Producer(self.settings)
        self._mirrors = {}

    def create(self, topic, partitions=1, **config):
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
        made[topic].result(SECONDS)
        return topic

    def grow(self, topic, partitions):
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)
        self.producer = Producer(self.settings)  # the old one knows the old partitions

    def delete(self, topic):
        self.admin.delete_topics([topic])[topic].result(SECONDS)

    def produce(self, topic, values, *, key=None, partition=-1, headers=None):
        for value in values:
            each = {"headers": headers} if headers else {}
            self.producer.produce(topic, value, key, partition, **each)
        assert self.producer.flush(SECONDS) == 0

    def restart(self):
        """Kill the broker, and start it again."""
        self.broker.kill()
        self.broker.start()

    def messages(self, topic):
        """All committed messages of a topic so far, of each partition in order."""
        mirror = self._mirrors.get(topic)
        if mirror is None:
            mirror = self._mirrors[topic] = Mirror(self.settings, topic, self.admin)
        return mirror.read()

    def table(self, topic):
        """What a topic of upserts and tombstones says: the rows that are there."""
        rows = {}
        for message in self.messages(topic):
            if message.value() is None:
                rows.pop(message.key(), None)
            else:
                rows[message.key()] = json.loads(message.value())
        return rows

    def close(self):
        for mirror in self._mirrors.values():
            mirror.consumer.close()


class Mirror:
    def __init__(self, settings, topic, admin):
        self.consumer = Consumer(
            settings
            | {"group.id": "tests", "enable.partition.eof": True}
            | {"isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._seen = []
        partitions = []
        deadline = time.monotonic() + SECONDS
        while not partitions and time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=SECONDS).topics[topic]
            partitions = sorted(found.partitions)
        self._partitions = partitions
        self.consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        self._at_end = set()
        self._known = {}

    def read(self):
        """Read to the end of each partition, as it is now."""
        self._at_end = set()
        ends = {each: self._end(each) for each in self._partitions}
        deadline = time.monotonic() + SECONDS
        while not self._is_done(ends):
            assert time.monotonic() < deadline, "the end of a topic is not reached"
            for message in self.consumer.consume(1000, 0.05):
                if message.error() is None:
                    self._seen.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    self._at_end.add((message.partition(), message.offset()))
                else:
                    raise AssertionError(message.error())
        return list(self._seen)

    def _end(self, partition):
        """The end of a partition; 0 for one that has no leader: just made, or after a restart."""
        try:
            asked = TopicPartition(self._topic(), partition)
            return self.consumer.get_watermark_offsets(asked, timeout=SECONDS)[1]
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].name() != "_UNKNOWN_PARTITION":
                raise
            return 0

    def _topic(self):
        return self.consumer.assignment()[0].topic

    def _is_done(self, ends):
        reached = dict(sorted(self._at_end))
        for each in self.consumer.position(
            [TopicPartition(self._topic(), each) for each in self._partitions]
        ):
            at = max(
                each.offset, reached.get(each.partition, 0), self._known.get(each.partition, 0)
            )
            self._known[each.partition] = at
        return all(self._known[partition] >= end for partition, end in ends.items())


@contextlib.contextmanager
def registry(schemas):
    """A server that answers as a schema registry does, over HTTP: the real one is not to be had."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def _answer(self, code, body):
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            schemas.requests.append(self.path)
            parts = self.path.strip("/").split("/")
            if schemas.login and self.headers.get("Authorization") != schemas.login:
                return self._answer(401, {"message": "Unauthorized"})
            if parts[:2] == ["schemas", "ids"] and int(parts[2]) in schemas.by_id:
                return self._answer(200, {"schema": json.dumps(schemas.by_id[int(parts[2])])})
            if parts[0] == "subjects" and parts[1] in schemas.by_subject:
                number = schemas.by_subject[parts[1]]
                return self._answer(
                    200, {"id": number, "schema": json.dumps(schemas.by_id[number])}
                )
            return self._answer(404, {"error_code": 40403, "message": "Schema not found"})

        def do_POST(self):
            subject = self.path.strip("/").split("/")[1]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(200, {"id": schemas.register(subject, json.loads(body["schema"]))})

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Schemas:
    """What a registry has."""

    def __init__(self, login=None):
        self.by_id = {}
        self.by_subject = {}
        self.requests = []
        self.login = login

    def register(self, subject, schema):
        for number, known in self.by_id.items():
            if known == schema:
                self.by_subject[subject] = number
                return number
        number = len(self.by_id) + 1
        self.by_id[number] = schema
        self.by_subject[subject] = number
        return number
