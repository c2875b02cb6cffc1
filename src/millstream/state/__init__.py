"""Current rows in Arrow: by key, as multisets, as groups; what changes, and when that is emitted.

Takes: batches of weighted rows in LSN order.
Gives: the rows that hold now, the differences that a batch makes, and which of them are due.
Never knows: SQL, Spark, files, logs, readers.
"""
