"""Views' queries on Spark: each one real-time query, from a view's first row to its last.

Takes: a view's plan and the logs it reads.
Gives: result rows, each flush with the LSN up to which it counts; keeps the query running.
Never knows: what becomes of the rows.
"""
