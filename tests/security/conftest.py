"""What hostile users try. One session of Spark for all, a database for each."""

import pytest

import millstream as ms


def pytest_collection_modifyitems(items):
    """Those that need Spark take long."""
    for item in items:
        if "/tests/security/" in str(item.path) and "spark_owner" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def spark(spark_owner):
    return spark_owner.session


@pytest.fixture
def db(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as opened:
        opened.execute("CREATE TABLE plain (id BIGINT PRIMARY KEY, name VARCHAR)")
        opened.execute("INSERT INTO plain VALUES (1, 'a')")
        yield opened


@pytest.fixture
def canary(tmp_path):
    """A file that a command would make."""
    made = tmp_path / "canary"
    yield made
    assert not made.exists()
