"""How many of TPC-DS's 99 queries are taken as views, as they stand, and why each other is not.

    python tools/tpcds.py FOLDER

FOLDER is a checkout of https://github.com/apache/spark, whose tests have the texts and the schema
(``git clone --depth 1``; some 100 files of it are read). Each query is planned over empty tables,
down to its operators (EXPLAIN CREATE MATERIALIZED VIEW); none is run. A query of two texts, such
as 14a and 14b, is taken if both are. About two minutes.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import millstream as ms
from millstream.errors import SqlError

if TYPE_CHECKING:
    from millstream import Database

SCHEMA = "sql/core/src/test/scala/org/apache/spark/sql/TPCDSSchema.scala"
TEXTS = "sql/core/src/test/resources/tpcds"
FACTS = {
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
    "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"),
}
"""The keys of several columns; each other table has its first column as its key."""


def tables(schema: str) -> dict[str, list[tuple[str, str]]]:
    """The names and types of each table's columns, as Spark's tests have them."""
    columns = re.compile(r"`(\w+)` (\w+(?:\(\d+, *\d+\))?)")
    found = re.findall(r'"(\w+)" ->\s+"""(.*?)"""', schema, re.DOTALL)
    return {name: columns.findall(body) for name, body in found if columns.search(body)}


def create(db: Database, name: str, columns: list[tuple[str, str]]) -> None:
    """Create an empty table."""
    key = FACTS.get(name, (columns[0][0],))
    types = [f"{column} {'VARCHAR' if kind == 'CHAR' else kind}" for column, kind in columns]
    db.execute(f"CREATE TABLE {name} ({', '.join(types)}, PRIMARY KEY ({', '.join(key)}))")


def operators(db: Database, text: str) -> int | str:
    """How many operators a query would have as a view, or why it is refused."""
    sql = f"EXPLAIN CREATE MATERIALIZED VIEW v AS {text.strip().removesuffix(';')}"
    try:
        lines: list[str] = [line for (line,) in db.query(sql).fetchall()]
    except SqlError as error:
        return str(error.message)
    return sum(line.startswith("operator ") for line in lines)


def main() -> None:
    """Plan all, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="numbers, as 14,23")
    given = parser.parse_args()
    console, results = Console(width=150), defaultdict[int, list[int | str]](list)
    only = {int(each) for each in given.only.split(",") if each}
    with tempfile.TemporaryDirectory() as path, ms.open(path) as db, console.status("") as status:
        for name, columns in tables((given.folder / SCHEMA).read_text()).items():
            create(db, name, columns)
        for file in (given.folder / TEXTS).glob("q*.sql"):
            number = int(re.sub(r"\D", "", file.stem))
            if not only or number in only:
                status.update(file.stem)
                results[number].append(operators(db, file.read_text()))
    refused = {n: [e for e in each if isinstance(e, str)] for n, each in sorted(results.items())}
    taken = [sum(each) for n, each in results.items() if not refused[n]]  # type: ignore[arg-type]
    table = Table("query", "refused", title="TPC-DS")
    for number, why in refused.items():
        if why:
            table.add_row(f"q{number}", why[0])
    console.print(table)
    print(f"taken: {len(taken)} of {len(results)}")
    if taken:
        print(f"operators of each: median {statistics.median(taken):.0f}, most {max(taken)}")


if __name__ == "__main__":
    main()
