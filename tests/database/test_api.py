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
        ms.open(sync_intervall=1)


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
