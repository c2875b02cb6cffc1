"""Views' queries on Spark, in two gears with one checkpoint.

Takes: a view's plan and the logs it reads.
Gives: result rows, each flush with the LSN up to which it counts; keeps the query running.
Never knows: what becomes of the rows.
"""
