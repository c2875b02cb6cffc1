"""Ad-hoc queries: from any SELECT to the SQL of DuckDB, with the meaning that Spark gives it.

Takes: a query's tree, and what is known of the sources, tables and views that it names.
Gives: a plan: DuckDB's SQL, what it reads, the columns that come out, the functions DuckDB lacks.
Never knows: DuckDB itself, where rows are, whose query it is; it does no I/O and reads no clock.

Expressions are bound by ``sql.expressions``, so types, conversions and refusals are those of every
other query. What DuckDB does as Spark does is written in its own SQL; any other operation becomes a
kernel, which runs our own compiled form of it. What neither can answer exactly is refused.

A SELECT without FROM that is a list of expressions needs no DuckDB: ``constant``.

In the order of reading: ``plan`` (WITH, UNION), ``select``, ``from_clause``, ``binder``; then
``groups``, ``aggregates`` and ``window_functions``; ``draft``, which gathers what they write;
``to_duckdb`` and ``duckdb_types``.
"""

from millstream.sql.adhoc.constant import ConstantRow, constant_row
from millstream.sql.adhoc.plan import AdhocPlan, plan_adhoc
from millstream.sql.adhoc.to_duckdb import Kernel

__all__ = ["AdhocPlan", "ConstantRow", "Kernel", "constant_row", "plan_adhoc"]
