"""A Kafka of its own for these tests, shared by all of them; each has topics of its own."""

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

from .outside import Outside

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools"))


def pytest_collection_modifyitems(items):
    """Mark the tests that need the broker, whose start alone takes ten seconds."""
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def load_tool():
    spec = importlib.util.spec_from_file_location("kafka_tool", ROOT / "tools" / "kafka.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    tool = load_tool()
    if not tool.is_there():
        pytest.skip(tool.HOW)
    started = tool.Broker(tmp_path_factory.mktemp("kafka"))
    started.start()
    yield started
    started.kill()


@pytest.fixture(scope="session")
def kafka(broker):
    """The clients of the tests."""
    made = Outside(broker)
    yield made
    made.close()


_numbers = itertools.count()


@pytest.fixture
def topic(kafka):
    """A topic of two partitions."""
    return kafka.create(f"t{next(_numbers)}", 2)
