"""The public face: explicit options, typed errors, plain reprs, no internals in sight."""

from __future__ import annotations

import inspect

import pytest

import millstream as ms

PUBLIC = [getattr(ms, name) for name in ms.__all__ if inspect.isclass(getattr(ms, name))]


def public_callables():
    yield "open", ms.open
    for kind in PUBLIC:
        for name in dir(kind):
            method = inspect.getattr_static(kind, name)
            method = getattr(method, "__func__", method)
            if not name.startswith("_") and inspect.isfunction(method):
                yield f"{kind.__name__}.{name}", method


@pytest.mark.parametrize(("name", "function"), list(public_callables()))
def test_every_option_has_a_name_and_a_type(name, function):
    for parameter in inspect.signature(function).parameters.values():
        if (name, parameter.name) == ("Schema.of", "more"):  # the columns of the user
            continue
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD
        typed = parameter.annotation is not inspect.Parameter.empty
        assert typed or parameter.name in {"self", "cls"}


def test_open_takes_the_options_of_a_database():
    options = inspect.signature(ms.open).parameters
    assert list(options) == list(inspect.signature(ms.Database).parameters)
    for name, option in inspect.signature(ms.Database).parameters.items():
        assert (options[name].default, options[name].annotation) == (
            option.default,
            option.annotation,
        )


def test_the_styles_of_subscriptions_take_the_same_options():
    wanted = dict(inspect.signature(ms.Database.subscribe).parameters)
    for style in (ms.Database.subscribe_callback, ms.Database.subscribe_stream):
        given = inspect.signature(style).parameters
        for name, option in wanted.items():
            assert given[name].default == option.default
            assert given[name].annotation == option.annotation


def test_a_typo_names_the_option(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    for call in (db.subscribe, db.subscribe_stream, db.changes, db.changes_stream):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\).*'bufer_rows'"):
            call("SELECT * FROM s", bufer_rows=1)
    with pytest.raises(TypeError, match=r"subscribe_callback\(\).*'bufer_rows'"):
        db.subscribe_callback("SELECT * FROM s", print, bufer_rows=1)
    with pytest.raises(TypeError, match=r"open\(\).*'sync_intervall'"):
        ms.open(sync_intervall=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "option",
    [
        {"start": "now"},
        {"backpressure": "drop_oldest"},
        {"buffer_rows": 1},
        {"max_rows": 1},
        {"max_delay": 0.1},
        {"demand": 1},
        {"name": "n"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_inline_callback_has_no_place_in_the_log(db, option):
    db.execute("CREATE SOURCE s (n BIGINT)")
    with pytest.raises(ms.errors.InvalidOptionError, match=f"no {next(iter(option))}"):
        db.subscribe_callback("SELECT * FROM s", print, inline=True, **option)


# --- What people see ------------------------------------------------------------------------------


def test_reprs_say_what_it_is_in_a_line(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, n INT)")
    db.execute("CREATE SOURCE s (n BIGINT)")
    bus, listener = db.changes("t", include="changed"), db.listen("c")
    subscription = db.subscribe("SELECT *\n  FROM t\n  WHERE id > 0", name="mine", start="now")
    callback = db.subscribe_callback("SELECT * FROM s", print)
    inline = db.subscribe_callback("SELECT * FROM s", print, inline=True)
    db.execute("INSERT INTO t VALUES (1, 'Ada', 2)")
    n = db.lsn
    assert repr(next(iter(subscription.recv(timeout=60)))) == (
        f"<Change insert at LSN {n}: id=1, name='Ada', n=2>"
    )
    db.execute("UPDATE t SET n = 3")
    batch = subscription.recv(timeout=60)
    assert repr(batch) == f"<ChangeBatch of t: 2 rows, LSN {n + 1}..{n + 2}>"
    assert [repr(change) for change in batch] == [
        f"<Change update at LSN {n + 2}: id=1, name='Ada', n=3 (before: n=2)>"
    ]
    assert repr(subscription) == "<Subscription 'mine' active: SELECT * FROM t WHERE id > 0>"
    assert repr(callback) == "<CallbackSubscription active: SELECT * FROM s>"
    assert repr(inline) == "<InlineSubscription active: SELECT * FROM s>"
    event = (bus.recv(timeout=60), bus.recv(timeout=60))[1]
    assert repr(event) == (
        f"<ChangeEvent update t at LSN {n + 2}, key={{'id': 1}}, changed={{'n': 3}}, "
        f"{event.timestamp.isoformat()}>"
    )
    assert repr(bus) == "<Events active: changes of t>"
    assert repr(listener) == "<Events active: LISTEN c>"
    with db.source("s") as source, db.writer("s") as writer:
        assert repr(source) == "<Source s: n BIGINT>"
        writer.write((1,))
        assert repr(writer) == "<Writer s: 1 of 1024 rows pending>"
    long = db.subscribe(f"SELECT * FROM t WHERE name = '{'x' * 5000}'")
    assert len(repr(long)) < 120
    for each in (event, batch, subscription, long, callback, inline, bus, db):
        assert "\n" not in repr(each)


def test_dir_shows_what_is_public(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    with (
        db.source("s") as source,
        db.writer("s") as writer,
        db.subscribe("SELECT * FROM s") as subscription,
        db.subscribe_callback("SELECT * FROM s", print) as callback,
        db.subscribe_callback("SELECT * FROM s", print, inline=True) as inline,
        db.changes() as bus,
    ):
        source.push((1,))
        batch = subscription.recv(timeout=60)
        things = [db, source, writer, subscription, callback, inline, bus, batch]
        for each in (*things, db.query("SELECT n FROM s")):
            assert not [name for name in dir(each) if name.startswith("_")]
            assert all(hasattr(each, name) for name in dir(each))
        assert {"rows", "to_arrow", "to_pandas", "gap", "token", "kind"} <= set(dir(batch))
        assert {"lsn", "cause"} <= set(dir(batch))
        assert not {"held_rows", "put_at", "of_row", "with_columns"} & set(dir(batch))
        assert not {"check", "start"} & {*dir(subscription), *dir(callback)}
        assert {"recv", "try_recv", "ack", "metrics", "pause", "token"} <= set(dir(subscription))
        assert {"push", "push_batch", "push_arrow", "watermark"} <= set(dir(source))
    assert set(dir(ms)) == set(ms.__all__)
