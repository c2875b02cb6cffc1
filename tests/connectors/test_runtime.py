"""The parts of the runtime: threads that are supervised, pauses, options, batches, the registry."""

import threading
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.catalog.options import names_of
from millstream.connectors import ConnectorFailedError, Option, SinkBatch, SourceEnd, registry
from millstream.connectors.options import OF_SINKS, OF_SOURCES, Scrubber, settings_of
from millstream.connectors.pace import RateLimit, Retries
from millstream.connectors.supervisor import Supervisor
from millstream.errors import ClosedError, ConnectorError, MissingExtraError, ObjectNotFoundError
from millstream.model import ChangeBatch, Schema
from millstream.testing import wait_until


@pytest.fixture
def supervised():
    """Starts the supervisor of a function; all are stopped."""
    started = []

    def start(work, **retries):
        options = {"first": 0.001, "longest": 0.002, **retries}
        made = Supervisor("x", work, Retries(**options), lambda text: text.replace("pw", "***"))
        started.append(made)
        made.start()
        return made

    yield start
    for each in started:
        each.stop()


def state(supervisor, *states):
    wait_until(lambda: supervisor.state in states, lambda: f"{states}, not {supervisor.state}")


def until_ending(supervisor):
    supervisor.opened()
    while not supervisor.wait(0.001):
        pass


# ---- supervisors


def test_it_is_tried_again_until_it_works(supervised):
    attempts = []

    def work(supervisor):
        attempts.append(1)
        if len(attempts) < 4:
            raise OSError("no pw")
        supervisor.worked()
        until_ending(supervisor)

    made = supervised(work)
    state(made, "running")
    assert (len(attempts), made.restarts, made.error) == (4, 3, None)


def test_it_rests_after_many_failures_and_resume_ends_that(supervised):
    attempts = []

    def work(supervisor):
        attempts.append(1)
        raise OSError("no pw")

    made = supervised(work, limit=3, rest=1000.0)
    state(made, "resting")
    assert (len(attempts), made.error) == (3, "OSError: no ***")
    made.resume()
    wait_until(lambda: len(attempts) == 6, "three attempts more")
    state(made, "resting")
    made.pause()
    assert made.state == "paused"


def test_what_no_repetition_mends_waits_for_resume(supervised):
    attempts = []

    def work(supervisor):
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectorFailedError("gone", hint="make it")
        until_ending(supervisor)

    made = supervised(work)
    state(made, "failed")
    assert made.error == "gone (hint: make it)"
    made.resume()
    state(made, "running")
    made.pause()
    assert made.state == "paused"
    made.resume()
    state(made, "running")


def test_an_end_is_no_error(supervised):
    def work(supervisor):
        raise SourceEnd

    made = supervised(work)
    state(made, "finished")
    assert made.error is None
    made.stop()
    assert made.state == "stopped"


def test_one_that_does_not_stop_is_abandoned(supervised):
    release, seen = threading.Event(), []

    def work(supervisor):
        release.wait(60)
        try:
            supervisor.check()
        except ClosedError:
            seen.append("refused")

    made = supervised(work)
    made.stop(0.01)
    release.set()
    wait_until(lambda: seen == ["refused"], "what it does is refused")


# ---- pauses and rates


@given(st.floats(0.001, 10), st.floats(10, 100), st.integers(2, 30), st.randoms())
def test_pauses_grow_and_are_bounded(first, longest, limit, random):
    retries = Retries(first, longest, limit, 1000.0, jitter=random.random)
    for attempt in range(1, limit):
        pause = retries.failed()
        full = min(longest, first * 2 ** (attempt - 1))
        assert full / 2 <= pause <= full
    assert retries.failed() == 1000.0
    retries.succeeded()
    assert retries.failed() <= first


@given(st.lists(st.integers(0, 500), min_size=1, max_size=50), st.floats(1, 1000))
def test_a_rate_is_kept(counts, rate):
    limit, now, done = RateLimit(rate), 0.0, 0
    for count in counts:
        done += count
        now += limit.pause_after(count, now)
        assert done <= rate * (now + 1) * (1 + 1e-9)
    assert RateLimit(None).pause_after(10**9, 0.0) == 0.0


# ---- options and secrets


def test_no_connector_takes_the_names_that_all_have():
    common = {each.name for each in (*OF_SOURCES, *names_to_options(names_of("source")))}
    for name in registry.names("source"):
        own = {each.name for each in registry.source_connector(name).options}
        assert not own & common, name
    for name in registry.names("sink"):
        own = {each.name for each in registry.sink_connector(name).options}
        assert not own & {each.name for each in OF_SINKS}, name


def names_to_options(names):
    return [Option(name) for name in names]


def test_every_option_has_a_help():
    for side, find in (("source", registry.source_connector), ("sink", registry.sink_connector)):
        for name in registry.names(side):
            missing = [each.name for each in find(name).options if not each.help]
            assert not missing or name.startswith("test-"), (name, missing)


@pytest.mark.parametrize(
    ("kind", "given_", "value"),
    [
        ("int", "7", 7),
        ("float", 2, 2.0),
        ("bool", "off", False),
        ("duration", "250 ms", 0.25),
        ("size", "2 KB", 2048),
        ("json", "[1]", [1]),
        ("text", 5, "5"),
    ],
)
def test_values(kind, given_, value):
    assert settings_of({"a": given_}, [Option("a", kind)])["a"] == value


def test_references_within_a_text(monkeypatch):
    monkeypatch.setenv("TEST_USER", "app")
    monkeypatch.setenv("TEST_PW", "s3cret")
    url = "pg://${env:TEST_USER}:${env:TEST_PW}@db/x"
    assert settings_of({"url": url}, [Option("url")])["url"] == "pg://app:s3cret@db/x"
    scrub = Scrubber({"url": url}, ())
    assert scrub("no entry for app with s3cret") == "no entry for *** with ***"
    assert scrub("pg://other:word@db") == "pg://other:***@db"


# ---- batches of sinks


SCHEMA = Schema.of(key=("id",), id="BIGINT NOT NULL", v="VARCHAR")


@given(st.data())
def test_net_changes_are_what_a_copy_becomes(data):
    """Random changes by key, committed as -old, +new: applied net or one by one, all the same."""
    state, copy = {}, {}
    for _ in range(3):
        rows, weights = [], []
        for _ in range(data.draw(st.integers(0, 6))):
            key = data.draw(st.integers(0, 3))
            new = data.draw(st.none() | st.sampled_from("abc"))
            old = state.get(key)
            if old == new:
                continue
            for value, weight in ((old, -1), (new, 1)):
                if value is not None:
                    rows.append((key, value))
                    weights.append(weight)
            state[key] = new
            if new is None:
                del state[key]
        batch = ChangeBatch.from_rows(SCHEMA, rows, weights=weights or None)
        net = SinkBatch(batch).net()
        assert not {row[0] for row in net.upserts} & {key for (key,) in net.deletes}
        for (key,) in net.deletes:
            copy.pop(key, None)
        copy.update(net.upserts)
        assert copy == state
        upserts, deletes = SinkBatch(batch).net_tables()
        assert sorted(upserts["id"].to_pylist()) == sorted(row[0] for row in net.upserts)
        assert sorted(deletes["id"].to_pylist()) == sorted(key for (key,) in net.deletes)


def test_a_sink_that_only_appends_refuses_changes():
    batch = ChangeBatch.from_rows(SCHEMA, [(1, "a"), (1, "b")], weights=[-1, 1])
    with pytest.raises(ConnectorFailedError, match="only append"):
        SinkBatch(batch).inserted()
    without_key = ChangeBatch.from_rows(Schema.of(v="VARCHAR"), [("a",)])
    assert SinkBatch(without_key).inserted().num_rows == 1
    with pytest.raises(ConnectorFailedError, match="no key"):
        SinkBatch(without_key).net()


# ---- the registry


def test_entry_points_of_other_packages(monkeypatch):
    found = EntryPoints(
        [
            EntryPoint("source.acme", "tests.connectors.samples:Lines", registry.GROUP),
            EntryPoint("sink.broken", "no_such_package:Sink", registry.GROUP),
            EntryPoint("source.wrong", "json:dumps", registry.GROUP),
        ]
    )
    monkeypatch.setattr(registry, "entry_points", found.select)
    assert "acme" in registry.names("source")
    assert registry.source_connector("acme").name == "test-lines"
    with pytest.raises(MissingExtraError, match="no_such_package"):
        registry.sink_connector("broken")
    with pytest.raises(ConnectorError, match="is no SourceConnector"):
        registry.source_connector("wrong")


def test_nothing_is_imported_for_a_list_of_names():
    assert {"generator"} <= set(registry.names("source"))
    with pytest.raises(ObjectNotFoundError, match="'generatr'") as caught:
        registry.source_connector("generatr")
    assert "did you mean 'generator'?" in caught.value.hint
