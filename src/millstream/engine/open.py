"""Opening a database: recovery as a list of steps, in the order of ``open_engine``."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.catalog import Catalog
from millstream.dispatch import Dispatcher
from millstream.engine import ddl, notifications
from millstream.engine.connections import SINK_PREFIX, Connections
from millstream.engine.context import Context
from millstream.engine.engine import Engine
from millstream.engine.inlets import Inlets
from millstream.engine.once import InsertKeys
from millstream.engine.sink_feeds import SinkFeeds
from millstream.errors import Error
from millstream.log import Log
from millstream.model.arguments import check_seconds
from millstream.model.lsn import FIRST_LSN
from millstream.queries.relations import Relations
from millstream.spark.session import Spark
from millstream.subscriptions import Positions, Registry
from millstream.tables import Tables
from millstream.threads import thread
from millstream.views.saver import Saver
from millstream.views.views import Views

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from millstream.catalog import Definition
    from millstream.model.clock import Clock


_logger = logging.getLogger("millstream.views")


def open_engine(
    path: Path,
    *,
    sync_interval: float,
    retention_interval: float,
    segment_bytes: int,
    ddl_timeout: float,
    repair: bool,
    clock: Clock,
    spark: Any,  # noqa: ANN401 - a SparkSession; pyspark is imported with the first view
    master: str | None,
    spark_options: Mapping[str, str] | None,
) -> Engine:
    """Open a directory, and recover what a crash has left; arguments are those of ``Database``.

    The views are loaded, but do not run yet: see ``start_views``.
    """
    check_seconds(ddl_timeout, "ddl_timeout")
    use_system_memory_pool()
    log = Log(  # locks the directory; the log ends with the last commit that is entire
        path,
        sync_interval=sync_interval,
        retention_interval=retention_interval,
        segment_bytes=segment_bytes,
        repair=repair,
        clock=clock,
    )
    hold = log.hold(lsn=FIRST_LSN)  # until durable subscriptions and views hold what they need
    try:
        cluster = Spark(path / "spark", session=spark, master=master, options=spark_options)
        engine = assemble(log, cluster, ddl_timeout)
        definitions = sorted(engine.catalog, key=lambda each: each.born)  # the oldest first
        open_tables(engine, definitions)
        open_sources(engine, definitions)
        load_views(engine, definitions)
        engine.connections.load()  # where connectors go on
        forget_sinks(engine)
    except BaseException:
        log.close()
        raise
    finally:
        hold.release()
    return engine


def use_system_memory_pool() -> None:
    """Let Arrow allocate by the C library, unless ARROW_DEFAULT_MEMORY_POOL names another pool.

    With Arrow's default, mimalloc, the resident memory of a process with many views, whose batches
    are allocated and freed by different threads, grew by 20 MB a minute while Arrow held 0.2 MB.
    """
    if not os.environ.get("ARROW_DEFAULT_MEMORY_POOL"):
        pa.set_memory_pool(pa.system_memory_pool())


def assemble(log: Log, spark: Spark, ddl_timeout: float) -> Engine:
    """The parts, in the order in which they read what is theirs from the log."""
    # What exists; topics that CREATE has left half made are dropped.
    catalog = Catalog(log, ddl_timeout)
    dispatcher = Dispatcher(log)  # its thread starts: from now on it makes the commits
    inlets = Inlets(log, dispatcher, catalog)
    positions = Positions(log, dispatcher)  # durable subscriptions take holds
    saver = Saver(log, dispatcher.barrier)
    tables = Tables(log, dispatcher)
    views = Views(log, dispatcher, catalog, saver, spark)  # what DROP VIEW has left is dropped
    views.storage.table_rows = tables.rows_of
    engine = Engine(
        log=log,
        catalog=catalog,
        dispatcher=dispatcher,
        inlets=inlets,
        notifications=inlets.open_system(notifications.TOPIC, notifications.SCHEMA),
        saver=saver,
        tables=tables,
        views=views,
        relations=Relations(log, dispatcher, catalog, tables, views),
        positions=positions,
        registry=Registry(log, positions),
        insert_keys=InsertKeys(log, dispatcher),
        connections=Connections(log, dispatcher, catalog, inlets, tables),
    )
    engine.connections.sink_side = SinkFeeds(Context(engine))
    engine.connections.add_column = partial(ddl.evolve, engine)
    return engine


def open_tables(engine: Engine, definitions: Iterable[Definition]) -> None:
    """Read the rows of the tables: those that were saved, and the changes after them."""
    for definition in definitions:
        if definition.broken:  # perhaps another release can read it
            engine.saver.hold(definition)
            engine.log.hold(definition.name, lsn=FIRST_LSN, kept=True)
        elif definition.kind == "table":
            engine.open_relation(definition)


def open_sources(engine: Engine, definitions: Iterable[Definition]) -> None:
    """Let rows be pushed to the sources; event time goes on from the last watermark."""
    for definition in definitions:
        if definition.kind == "source" and not definition.broken:
            engine.open_relation(definition, engine.log.watermark(definition.name))


def load_views(engine: Engine, definitions: Iterable[Definition]) -> None:
    """Load the views, the oldest first: a view reads only what was created before it."""
    for definition in definitions:
        if definition.query:
            engine.views.open(definition)


def forget_sinks(engine: Engine) -> None:
    """Drop the positions of sinks that a crash has dropped halfway: they would keep the log."""
    for each in engine.positions.all():
        name = each.name.removeprefix(SINK_PREFIX)
        if each.tenant is None and name != each.name and not engine.catalog.has_sink(name):
            engine.positions.drop(each.key)


def start_views(engine: Engine) -> None:
    """Start the views, then the connectors."""
    engine.views.start()
    engine.connections.start()
    if engine.views.outdated:
        thread("rebuild", partial(_rebuild, engine), lambda _: None).start()


def _rebuild(engine: Engine) -> None:
    """Have the views that an earlier version has stored otherwise computed anew, one by one."""
    for name in engine.views.outdated:
        _logger.warning("%s was stored by an earlier version: it is computed anew", name)
        try:
            ddl.rebuild(engine, name)
        except Error as error:
            if engine.is_closed:
                return  # it is tried again when the database is opened
            _logger.warning("%s cannot be computed anew: %s", name, error)
