"""Tables: rows by primary key, changed by INSERT, UPDATE and DELETE.

Takes: rows and compiled predicates.
Gives: the changes that a statement means, and the current rows with the LSN at which they hold.
Never knows: SQL text, subscribers, threads other than the one that applies and those that read.
"""

from millstream.tables.table import Changes, Table

__all__ = ["Changes", "Table"]
