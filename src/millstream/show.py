"""What SHOW, DESCRIBE and EXPLAIN give: results made of what there is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.dispatch import select
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.sql import duration_text
from millstream.subscriptions import EventMaker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.catalog import Definition
    from millstream.engine import Engine
    from millstream.model.batch import Row
    from millstream.sql import SelectPlan, Show
    from millstream.subscriptions import ChangeEvent
    from millstream.subscriptions.registry import Registry

STATUS: Final = Schema.of(status="VARCHAR")

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
)
_TABLES: Final = Schema.of(
    name="VARCHAR NOT NULL",
    columns="VARCHAR NOT NULL",
    primary_key="VARCHAR NOT NULL",
    tenant="VARCHAR",
    rows="BIGINT NOT NULL",
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
        "timestamp": "TIMESTAMP NOT NULL",
        "before": "VARCHAR",
        "after": "VARCHAR",
    }
)


def targeted(plan: SelectPlan, name: str) -> SelectPlan:
    """A plan that names its target as the catalog does, however the query wrote it."""
    return plan if plan.target == name else replace(plan, target=name)


def objects(statement: Show, engine: Engine, registry: Registry) -> Result:
    """SHOW SOURCES and the like."""
    schema, rows = _listed(statement.kind, engine, registry)
    if statement.like is not None:
        pattern = _pattern(statement.like)
        place = schema.names.index("name")
        rows = [row for row in rows if row[place] and pattern.fullmatch(row[place])]
    return Result.of_rows(schema, rows, lsn=engine.dispatcher.lsn)


def _listed(kind: str, engine: Engine, registry: Registry) -> tuple[Schema, list[Row]]:
    if kind == "sources":
        return _SOURCES, [_source(d, engine) for d in engine.catalog if d.kind == "source"]
    if kind == "tables":
        return _TABLES, [_table(d, engine) for d in engine.catalog if d.kind == "table"]
    if kind == "subscriptions":
        return _SUBSCRIPTIONS, list(_subscriptions(engine, registry))
    return Schema.of(name="VARCHAR NOT NULL"), []


def _source(definition: Definition, engine: Engine) -> Row:
    inlet, options, mark = engine.inlet(definition), definition.options, definition.watermark
    return (
        definition.name,
        definition.schema.ddl,
        None if mark is None else f"{mark.column} - {duration_text(mark.delay)}",
        options.backpressure,
        options.buffer_size,
        options.wal_mode,
        None if options.retention is None else duration_text(options.retention),
        options.tenant,
        len(inlet.watchers),
        len(inlet.items),
        inlet.pushed,
        inlet.dropped,
    )


def _table(definition: Definition, engine: Engine) -> Row:
    return (
        definition.name,
        definition.schema.ddl,
        ", ".join(definition.schema.key),
        definition.options.tenant,
        engine.row_count(definition),
    )


def _subscriptions(engine: Engine, registry: Registry) -> Iterator[Row]:
    for each in registry.all():
        if each.style == "inline":
            yield (None, None, "inline", each.state, each.sql, None, each.delivered) + (None,) * 6  # type: ignore[union-attr]
            continue
        m = each.metrics  # type: ignore[union-attr]
        yield (
            *(each.id, each.name, each.style, each.state, each.sql, each.backpressure),  # type: ignore[union-attr]
            *(m.delivered, m.dropped, m.conflated, m.lag_rows, m.lag_seconds, m.position),
            m.acknowledged,
        )
    for durable in engine.positions.all():
        if not registry.is_open(durable.name):
            lag = max(0, engine.dispatcher.lsn - max(0, durable.lsn))
            yield (
                *(None, durable.name, None, "closed", durable.sql, None, None, None, None),
                *(lag, None, None, max(0, durable.lsn)),
            )


def create(definition: Definition) -> Result:
    """SHOW CREATE."""
    schema = Schema.of(name="VARCHAR NOT NULL", sql="VARCHAR NOT NULL")
    return Result.of_rows(schema, [(definition.name, definition.sql)])


def describe(definition: Definition) -> Result:
    """DESCRIBE."""
    schema = definition.schema
    return Result.of_rows(
        _COLUMNS, [(c.name, c.type.sql, c.nullable, c.name in schema.key) for c in schema.columns]
    )


def explain(definition: Definition, plan: SelectPlan) -> Result:
    """EXPLAIN: where a query runs, and how."""
    lines = [f"read {definition.kind} {definition.name}: in process, by the dispatcher; no Spark"]
    if plan.equality is not None:
        column, values = plan.equality
        name = definition.schema.names[column]
        lines.append(f"index on {name}: {', '.join(map(repr, sorted(values, key=repr)))}")
    rest = plan.predicate if plan.equality is None else plan.residual
    if rest is not None:
        lines.append(f"filter {rest.sql}")
    lines.append(f"give {plan.schema.ddl}")
    if plan.limit is not None:
        lines.append(f"at most {plan.limit} rows")
    return Result.of_rows(Schema.of(plan="VARCHAR NOT NULL"), [(line,) for line in lines])


def changes(
    engine: Engine, collection: str | None, start: int | None, limit: int | None, tenant: str | None
) -> Result:
    """SHOW CHANGES: what was committed, from the log."""
    lsn = engine.dispatcher.barrier()
    rows: list[Row] = []
    for event in _events(engine, collection, start, lsn, tenant):
        if limit is not None and len(rows) >= limit:
            break
        rows.append(
            (
                *(event.lsn, event.collection, event.op.upper(), _json(event.key)),
                *(event.timestamp, _json(event.before), _json(event.after)),
            )
        )
    return Result.of_rows(_CHANGES, rows, lsn=lsn)


def _events(
    engine: Engine, collection: str | None, start: int | None, until: int, tenant: str | None
) -> Iterator[ChangeEvent]:
    maker = EventMaker(engine.tenant_of, include="both")
    names = engine.collections(tenant) if collection is None else (engine.catalog[collection].name,)
    if collection is not None:
        engine.tenant_column(engine.catalog[collection], tenant)
    first = start
    if start is not None and all(engine.log.topic(name).low_lsn < start for name in names):
        first = start - 1  # an update has the LSN of its new row; the old one is just before it
    for batch in engine.kept(names, until, first):
        plan = engine.whole(batch.topic, tenant)
        kept = None if plan is None else select(batch, plan)
        if kept is not None:
            yield from (event for event in maker(kept) if start is None or event.lsn >= start)


def _json(value: dict[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value, default=str, ensure_ascii=False)


def _pattern(like: str) -> re.Pattern[str]:
    parts = re.split(r"([%_])", like)
    text = "".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts)
    return re.compile(text, re.IGNORECASE | re.DOTALL)
