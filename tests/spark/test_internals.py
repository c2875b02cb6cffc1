"""Private members of PySpark are used in one file; what they do without a running Java."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from py4j import protocol
from py4j.java_gateway import GatewayClient

import millstream
from millstream.spark import internals

PRIVATE = re.compile(
    r"\b(?!self\b)\w+(?:\(\))?\._(jvm|jsc|jdf|jsq|jwrite|jsparkSession|gateway|gateway_client"
    r"|active_spark_context|instantiatedSession)\b"
)


def test_private_members_of_pyspark_are_in_one_file():
    root = Path(millstream.__file__).parent
    found = {
        str(path.relative_to(root)): PRIVATE.findall(path.read_text())
        for path in root.rglob("*.py")
        if PRIVATE.search(path.read_text())
    }
    assert list(found) == ["spark/internals.py"]


def test_pyspark_is_imported_without_a_word():
    code = (
        "import warnings; before = list(warnings.filters)\n"
        "from millstream.spark.internals import import_pyspark; import_pyspark()\n"
        "import sys; assert 'pyspark.testing.utils' in sys.modules\n"
        "from pyspark.sql.types import StructType; StructType()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stderr, done.stdout, done.returncode) == ("", "", 0)


class Wire:
    """A connection of py4j to a Java that answers, in turn, with texts or errors."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.closed = 0
        self.socket = None

    def send_command(self, command):
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self, reset):
        self.closed += 1


class Client:
    """The client that such a connection belongs to."""

    def __init__(self, wire):
        self.wire = wire
        self.given_back = 0

    def _get_connection(self):
        return self.wire

    def _give_back_connection(self, connection):
        self.given_back += 1

    def _should_retry(self, retry, connection, error):
        return GatewayClient._should_retry(self, retry, connection, error)


def broken(when):
    return protocol.Py4JNetworkError("gone", when=when)


@pytest.mark.parametrize(
    ("answers", "found", "closed"),
    [
        (["!ys"], "!ys", 0),
        ([broken(protocol.ERROR_ON_SEND), "!ys"], "!ys", 1),
        ([broken(protocol.ERROR_ON_SEND), broken(protocol.ERROR_ON_SEND)], protocol.ERROR, 2),
        ([broken(protocol.ERROR_ON_RECEIVE)], protocol.ERROR, 1),
    ],
)
def test_a_call_of_java_is_answered_as_by_py4j_and_logs_nothing(caplog, answers, found, closed):
    client = Client(Wire(*answers))
    with caplog.at_level(logging.DEBUG):
        assert internals._send_command(client, "c\n") == found
    assert (client.wire.closed, client.given_back) == (closed, int(found != protocol.ERROR))
    assert caplog.records == []


def test_an_interrupted_call_of_java_logs_nothing(caplog):
    client = Client(Wire(KeyboardInterrupt()))
    with caplog.at_level(logging.DEBUG), pytest.raises(KeyboardInterrupt):
        internals._send_command(client, "c\n")
    assert caplog.records == []
