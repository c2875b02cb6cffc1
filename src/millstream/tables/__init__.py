"""Tables: rows by primary key, changed by INSERT, UPDATE and DELETE.

Takes: rows and compiled predicates.
Gives: the changes that a statement means, committed; the current rows and the LSN at which they
hold.
Never knows: SQL text, subscribers, views.
"""

from millstream.tables.changes import Changes, Conflict
from millstream.tables.table import Table
from millstream.tables.tables import Tables

__all__ = ["Changes", "Conflict", "Table", "Tables"]
