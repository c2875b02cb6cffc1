"""What exists and what runs: SHOW, DESCRIBE, SHOW CHANGES, metrics, topology."""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from dataclasses import asdict
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from millstream.dispatch import select
from millstream.engine import connector_rows
from millstream.engine.connections import SINK_PREFIX
from millstream.errors import ObjectNotFoundError, TopicNotFoundError
from millstream.model.clock import from_datetime, to_datetime
from millstream.model.lsn import FIRST_LSN
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.sql import Describe, Show, ShowChanges, ShowCreate, duration_text
from millstream.sql.inputs import CLOCK
from millstream.subscriptions import EventMaker, InlineSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from millstream.catalog import Definition
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.log import Log
    from millstream.model.change import Gap
    from millstream.model.weighted_rows import Row
    from millstream.sql import Statement
    from millstream.sql.statements.statement import ShowKind
    from millstream.subscriptions import SubscriptionBase

_SOURCES: Final = Schema.of(
    name="VARCHAR NOT NULL",
    columns="VARCHAR NOT NULL",
    watermark="VARCHAR",
    backpressure="VARCHAR NOT NULL",
    buffer_size="BIGINT NOT NULL",
    wal_mode="VARCHAR NOT NULL",
    retention="VARCHAR",
    tenant="VARCHAR",
    producers="BIGINT NOT NULL",
    pending="BIGINT NOT NULL",
    pushed="BIGINT NOT NULL",
    dropped="BIGINT NOT NULL",
    state="VARCHAR NOT NULL",
    error="VARCHAR",
)
_TABLES: Final = Schema.of(
    name="VARCHAR NOT NULL",
    columns="VARCHAR NOT NULL",
    primary_key="VARCHAR NOT NULL",
    tenant="VARCHAR",
    rows="BIGINT NOT NULL",
    state="VARCHAR NOT NULL",
    error="VARCHAR",
)
_VIEWS: Final = Schema.of(
    name="VARCHAR NOT NULL",
    columns="VARCHAR NOT NULL",
    primary_key="VARCHAR NOT NULL",
    emit="VARCHAR NOT NULL",
    partitions="BIGINT NOT NULL",
    state="VARCHAR NOT NULL",
    rows="BIGINT NOT NULL",
    changes="BIGINT NOT NULL",
    lsn="BIGINT NOT NULL",
    lag_rows="BIGINT NOT NULL",
    late_rows="BIGINT NOT NULL",
    watermark="TIMESTAMP",
    state_rows="BIGINT",
    state_bytes="BIGINT",
    restarts="BIGINT NOT NULL",
    error="VARCHAR",
    query="VARCHAR NOT NULL",
)
_READABLE: Final = Schema.of(
    name="VARCHAR NOT NULL", columns="VARCHAR NOT NULL", tenant="VARCHAR NOT NULL"
)
_SUBSCRIPTIONS: Final = Schema.of(
    id="BIGINT",
    name="VARCHAR",
    style="VARCHAR",
    state="VARCHAR NOT NULL",
    query="VARCHAR NOT NULL",
    backpressure="VARCHAR",
    delivered="BIGINT",
    dropped="BIGINT",
    conflated="BIGINT",
    lag_rows="BIGINT",
    lag_seconds="DOUBLE",
    position="BIGINT",
    acknowledged="BIGINT",
    tenant="VARCHAR",
)
_OPTIONS: Final = Schema.of(option="VARCHAR NOT NULL", value="VARCHAR NOT NULL")
_OF_CONNECTORS: Final = (
    *("kind", "connector", "state", "rows", "batches", "rejected", "lag", "restarts", "error"),
)
_CREATED: Final = Schema.of(name="VARCHAR NOT NULL", sql="VARCHAR NOT NULL")
_GAPS: Final = Schema.of(
    first_lsn="BIGINT NOT NULL", last_lsn="BIGINT NOT NULL", lost_rows="BIGINT"
)
_COLUMNS: Final = Schema.of(
    {
        "column": "VARCHAR NOT NULL",
        "type": "VARCHAR NOT NULL",
        "nullable": "BOOLEAN NOT NULL",
        "key": "BOOLEAN NOT NULL",
    }
)
_CHANGES: Final = Schema.of(
    {
        "lsn": "BIGINT NOT NULL",
        "collection": "VARCHAR NOT NULL",
        "operation": "VARCHAR NOT NULL",
        "key": "VARCHAR",
        "timestamp": "TIMESTAMP",
        "before": "VARCHAR",
        "after": "VARCHAR",
    }
)
_OF_SOURCES: Final = ("producers", "pending", "pushed", "dropped")
_OF_VIEWS: Final = (
    "state",
    "rows",
    "changes",
    "lsn",
    "lag_rows",
    "late_rows",
    "restarts",
)


def show(context: Context, statement: Show) -> Result:
    """SHOW SOURCES and the like; to a tenant, the relations that it may read, and no counters."""
    schema, rows = _listed(context, statement.kind)
    if statement.like is not None:
        pattern = _pattern(statement.like)
        place = schema.names.index("name")
        rows = [row for row in rows if row[place] and pattern.fullmatch(row[place])]
    return Result.of_rows(schema, rows, lsn=context.engine.dispatcher.lsn, show_all=True)


def columns_of(context: Context, statement: Statement) -> Schema | None:
    """The columns of SHOW and DESCRIBE, without their rows; None for any other statement."""
    if isinstance(statement, Show):
        return _listed(context, statement.kind)[0]
    if isinstance(statement, Describe):
        return _OPTIONS if _is_sink(context, statement) else _COLUMNS
    return {ShowCreate: _CREATED, ShowChanges: _CHANGES}.get(type(statement))


def _listed(context: Context, kind: ShowKind) -> tuple[Schema, list[Row]]:
    """The columns and rows of SHOW, for one kind of objects."""
    engine = context.engine
    if context.tenant is not None:
        return _READABLE, list(_readable(kind, engine))
    if kind == "sources":
        return _SOURCES, list(_rows(engine, kind, _source))
    if kind == "tables":
        return _TABLES, list(_rows(engine, kind, _table))
    if kind in {"views", "streams"}:
        return _VIEWS, list(_rows(engine, kind, _derived))
    return _listed_rest(engine, kind)


def _rows(
    engine: Engine, kind: ShowKind, row_of: Callable[[Definition, Engine], Row]
) -> Iterator[Row]:
    """The rows of all objects of a kind, without those that are dropped meanwhile."""
    for each in engine.catalog:
        if each.kind + "s" == kind:
            with contextlib.suppress(ObjectNotFoundError, TopicNotFoundError):
                yield row_of(each, engine)


def _listed_rest(engine: Engine, kind: ShowKind) -> tuple[Schema, list[Row]]:
    if kind == "subscriptions":
        return _SUBSCRIPTIONS, list(_subscriptions(engine))
    if kind == "connectors":
        return connector_rows.CONNECTORS, [
            connector_rows.connector(each) for each in engine.connections.all()
        ]
    if kind == "sinks":
        return connector_rows.SINKS, [
            connector_rows.sink(each) for each in engine.connections.all() if each.kind == "sink"
        ]
    return Schema.of(name="VARCHAR NOT NULL"), []


def _readable(kind: str, engine: Engine) -> Iterator[Row]:
    for each in engine.catalog:
        if f"{each.kind}s" == kind and each.options.tenant is not None:
            yield each.name, each.schema.ddl, each.options.tenant


def _source(definition: Definition, engine: Engine) -> Row:
    options, mark = definition.options, definition.watermark
    counts = (0, 0, 0, 0)
    if not definition.broken:
        inlet = engine.inlets[definition]
        counts = (len(inlet.watchers), len(inlet.items), inlet.pushed, inlet.dropped)
    return (
        definition.name,
        definition.schema.ddl,
        None if mark is None else f"{mark.column} - {duration_text(mark.delay)}",
        options.backpressure,
        options.buffer_size,
        options.wal_mode,
        None if options.retention is None else duration_text(options.retention),
        options.tenant,
        *counts,
        *_condition(definition, engine),
    )


def _table(definition: Definition, engine: Engine) -> Row:
    table = engine.tables.get(definition.name)
    return (
        definition.name,
        definition.schema.ddl,
        ", ".join(definition.schema.key),
        definition.options.tenant,
        0 if table is None else len(table),
        *_condition(definition, engine),
    )


def _condition(definition: Definition, engine: Engine) -> tuple[str, str | None]:
    """The state of a source or a table, and why it is not ``ok``."""
    if definition.broken:
        return "broken", definition.broken
    table = engine.tables.get(definition.name)
    damage = engine.log.damage(definition.name)
    if damage is None and table is not None:  # its saved rows may be lost
        damage = table.error
    return ("ok", None) if damage is None else ("damaged", damage.message)


def _derived(definition: Definition, engine: Engine) -> Row:
    if not definition.query or definition.name in engine.views.failed:
        return _not_running(definition, engine)
    return _view(definition, engine)


def _view(definition: Definition, engine: Engine) -> Row:
    running = engine.views[definition.name]
    view, runner, emit = running.view, running.runner, running.planned.statement.emit
    error = running.error
    mark = view.watermark
    return (
        definition.name,
        definition.schema.ddl,
        ", ".join(definition.schema.key),
        emit.mode if emit.every is None else f"every {duration_text(emit.every)}",
        definition.options.partitions,
        running.state,
        len(view),
        view.changes,
        view.progress.reached,
        running.lag(engine.dispatcher.lsn),
        running.late_rows,
        None if mark is None else to_datetime(mark),
        *(running.state_size() or (None, None)),
        runner.restarts,
        None if error is None else error.message,
        definition.query,
    )


def _not_running(definition: Definition, engine: Engine) -> Row:
    """A view that could not be opened; or a log of rows that came too late."""
    error = engine.views.failed.get(definition.name)
    if error is not None:
        key, query = ", ".join(definition.schema.key), definition.query
        return (
            *(definition.name, definition.schema.ddl, key, "", 1, "failed"),
            *(0, 0, 0, 0, 0, None, None, None, 0, error.message, query),
        )
    return (
        *(definition.name, definition.schema.ddl, "", "late rows", 1, "live"),
        *(0, 0, 0, 0, 0, None, None, None, 0, None, definition.sql),
    )


def _subscriptions(engine: Engine) -> Iterator[Row]:
    for each in engine.registry.all():
        if each.style == "inline":
            yield (None, None, "inline", each.state, each.sql, None, each.delivered) + (None,) * 7  # type: ignore[union-attr]
            continue
        m = each.metrics  # type: ignore[union-attr]
        yield (
            *(each.id, each.name, each.style, each.state, each.sql, each.backpressure),  # type: ignore[union-attr]
            *(m.delivered, m.dropped, m.conflated, m.lag_rows, m.lag_seconds, m.position),
            *(m.acknowledged, each.tenant),  # type: ignore[union-attr]
        )
    for durable in engine.positions.all():
        if not engine.registry.is_open(durable.key):
            lag = max(0, engine.dispatcher.lsn - max(0, durable.lsn))
            yield (
                *(None, durable.name, None, "closed", durable.sql, None, None, None, None),
                *(lag, None, None, max(0, durable.lsn), durable.tenant),
            )


def gaps(found: Sequence[Gap]) -> Result:
    """ALTER ... SKIP DAMAGE: the gaps that readers will be given."""
    return Result.of_rows(_GAPS, [(each.first_lsn, each.last_lsn, each.count) for each in found])


def show_create(context: Context, statement: ShowCreate) -> Result:
    """SHOW CREATE."""
    catalog = context.engine.catalog
    definition = (
        catalog.sink(statement.name)
        if statement.kind == "sink" or catalog.has_sink(statement.name)
        else catalog[statement.name]
    )
    return Result.of_rows(_CREATED, [(definition.name, definition.sql)], show_all=True)


def _is_sink(context: Context, statement: Describe) -> bool:
    """Whether DESCRIBE is of a sink."""
    is_named = context.engine.catalog.has_sink(statement.name)
    return context.tenant is None and (statement.kind == "sink" or is_named)


def describe(context: Context, statement: Describe) -> Result:
    """DESCRIBE: the columns of a relation, the options of a sink."""
    catalog = context.engine.catalog
    if _is_sink(context, statement):
        sink = catalog.sink(statement.name)
        shown = {"query": sink.query, **sink.connection.shown}
        rows_of_sink = [(name, str(value)) for name, value in shown.items()]
        return Result.of_rows(_OPTIONS, rows_of_sink, show_all=True)
    schema = context.find(statement.name).schema
    rows = [(c.name, c.type.sql, c.nullable, c.name in schema.key) for c in schema.columns]
    return Result.of_rows(_COLUMNS, rows, show_all=True)


def show_changes(context: Context, statement: ShowChanges) -> Result:
    """SHOW CHANGES: what was committed from an LSN or a time on, and gaps where it is gone."""
    engine = context.engine
    if statement.collection is None:
        names = context.names()
    else:
        names = (context.find(statement.collection).name,)
    start = _first_lsn(engine.log, statement.since, names)
    lsn = engine.dispatcher.barrier()
    hold = engine.log.hold(lsn=FIRST_LSN)  # what is gone, and what is kept, at one moment
    try:
        rows = list(islice(_change_rows(context, names, start, lsn), statement.limit))
    finally:
        hold.release()
    return Result.of_rows(_CHANGES, rows, lsn=lsn)


def _first_lsn(log: Log, since: int | timedelta | datetime | None, names: tuple[str, ...]) -> int:
    if since is None or isinstance(since, int):
        return since or FIRST_LSN
    if isinstance(since, timedelta):
        return log.lsn_since(log.clock() - since // timedelta(microseconds=1), *names)
    return log.lsn_since(from_datetime(since), *names)


def _change_rows(context: Context, names: tuple[str, ...], start: int, until: int) -> Iterator[Row]:
    log = context.engine.log
    lost = [(log.lost(log.topic(name), start), name) for name in names]
    gaps = deque(sorted((gap.last_lsn, name, gap) for gap, name in lost if gap is not None))
    maker = EventMaker(context.tenant_column, include="both")
    # An update has the LSN of its new row; the old one is just before it.
    for batch in context.engine.relations.logged(names, until, max(start - 1, FIRST_LSN)):
        while gaps and gaps[0][0] < batch.first_lsn:
            yield _gap_row(*gaps.popleft())
        plan = context.select_all(batch.topic)
        kept = None if plan is None else select(batch, plan)
        for event in maker(kept) if kept is not None else ():
            if event.lsn >= start:
                yield (
                    *(event.lsn, event.collection, event.op.upper(), _json(event.key)),
                    *(event.timestamp, _json(event.before), _json(event.after)),
                )
    for each in gaps:
        yield _gap_row(*each)


def _gap_row(lsn: int, name: str, gap: Gap) -> Row:
    return (lsn, name, "GAP", None, None, None, _json(asdict(gap)))


def _json(value: dict[str, Any] | None) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except TypeError:  # the keys of a MAP may be dates, bytes, decimals
        return json.dumps(_with_text_keys(value), default=str, ensure_ascii=False)


def _with_text_keys(value: Any) -> Any:  # noqa: ANN401 - a value of any column
    if isinstance(value, dict):
        plain = (str, int, float, bool)
        return {
            key if isinstance(key, plain) else str(key): _with_text_keys(each)
            for key, each in value.items()
        }
    return list(map(_with_text_keys, value)) if isinstance(value, list) else value


def _pattern(like: str) -> re.Pattern[str]:
    parts = re.split(r"([%_])", like)
    text = "".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts)
    return re.compile(text, re.IGNORECASE | re.DOTALL)


# ---- metrics


def metrics(context: Context) -> dict[str, Any]:
    """Counters of the database, of each source, view and subscription."""
    context.check("see metrics")
    engine = context.engine
    open_now = engine.registry.all()
    return {
        "lsn": engine.dispatcher.lsn,
        "durable_lsn": engine.log.durable_lsn,
        "published": engine.dispatcher.fan_out.published,
        "subscribers": len(open_now),
        "sources": _counters(context, "sources", _OF_SOURCES),
        "connectors": _counters(context, "connectors", _OF_CONNECTORS),
        "views": _counters(context, "views", _OF_VIEWS) | _counters(context, "streams", _OF_VIEWS),
        "subscriptions": [
            {"id": each.id, "name": each.name, "query": each.sql, **asdict(each.metrics)}
            for each in open_now
            if not isinstance(each, InlineSubscription)
        ],
    }


def _counters(context: Context, kind: ShowKind, names: tuple[str, ...]) -> dict[str, Any]:
    """Some columns of SHOW, by the name of the object."""
    schema, rows = _listed(context, kind)
    shown = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return {each["name"]: {name: each[name] for name in names} for each in shown}


def topology(context: Context) -> dict[str, Any]:
    """What flows where: nodes, and edges between their names; of a tenant, what it may see.

    ``rows`` of an edge counts what went that way since the database was opened: to a view, all
    that its input has emitted; to a subscription, what was handed over. Tenants are not shown it,
    since the rows are of all.
    """
    context.check("see the topology")
    engine, seen = context.engine, set(context.names())
    nodes = [{"name": each.name, "kind": each.kind} for each in engine.catalog if each.name in seen]
    edges = [
        {"from": log, "to": running.view.name, "rows": _emitted(log, engine)}
        for running in engine.views
        for log in running.planned.inputs
        if log != CLOCK and (context.tenant is None or {log, running.view.name} <= seen)
    ]
    if context.tenant is None:
        for sink in (each for each in engine.connections.all() if each.kind == "sink"):
            name, relation = sink.definition.name, getattr(sink.definition, "relation", "")
            nodes.append({"name": name, "kind": "sink"})
            edges.append({"from": relation, "to": name, "rows": sink.work.counters.rows})
    for each in engine.registry.all():
        if isinstance(each, InlineSubscription) or not each.target or _is_of_sink(each):
            continue
        if context.tenant not in {None, each.tenant}:
            continue
        name = each.name or f"subscription {each.id}"
        if each.name and each.tenant != context.tenant:  # another one may use the name, too
            name = f"{each.name} of {each.tenant}"
        nodes.append({"name": name, "kind": "subscription"})
        edges.append({"from": each.target, "to": name, "rows": each.metrics.delivered})
    if context.tenant is not None:
        edges = [{"from": each["from"], "to": each["to"]} for each in edges]
    return {"nodes": nodes, "edges": edges}


def _is_of_sink(subscription: SubscriptionBase) -> bool:
    return subscription.tenant is None and (subscription.name or "").startswith(SINK_PREFIX)


def _emitted(name: str, engine: Engine) -> int:
    """How many rows a log was given since the database was opened, old and new ones."""
    definition = engine.catalog.get(name)
    if definition is not None and definition.kind == "table":
        table = engine.tables.get(name)
        return 0 if table is None else table.written
    if definition is not None and definition.kind == "source":
        with contextlib.suppress(ObjectNotFoundError):  # dropped meanwhile
            return 0 if definition.broken else engine.inlets[definition].pushed
    running = engine.views.get(name)
    return 0 if running is None else running.view.changes
