"""Current rows: of tables and of views, by key or as they come.

Takes: batches of changes in LSN order.
Gives: the current rows and the LSN at which they hold; the changes that a statement means.
Never knows: SQL text, subscribers, threads other than the one that applies and those that read.
"""

from millstream.views.bag import Bag
from millstream.views.table import Changes, Table

__all__ = ["Bag", "Changes", "Table"]
