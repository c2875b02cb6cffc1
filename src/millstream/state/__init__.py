"""Current rows as weighted multisets, in Python and in Arrow; rows as they are saved.

Takes: batches of weighted rows in LSN order.
Gives: the rows that hold now, and what a batch changes in them.
Never knows: SQL, Spark, files, logs, readers.
"""
