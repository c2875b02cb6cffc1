"""Current rows by key: of tables now, of views on Spark next.

Takes: batches of changes in LSN order.
Gives: the current rows and the LSN at which they hold; the changes that a statement means.
Never knows: SQL text, subscribers, threads other than the one that applies and those that read.
"""

from millstream.views.table import Changes, Table

__all__ = ["Changes", "Table"]
