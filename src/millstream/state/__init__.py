"""Current rows in Arrow: by key, as multisets, as groups; what changes between two states.

Takes: batches of weighted rows in LSN order.
Gives: the rows that hold now, and the differences that a batch makes.
Never knows: SQL, Spark, files, logs, readers.
"""
