"""Lowering: from Spark's optimized plan of a query to a dataflow of operators.

Takes: the text of a query, which Spark analyses and optimizes.
Gives: the operators and pipes of ``java/``, with Spark's own expressions in them.
Never knows: feeds, checkpoints, rows. ``lowering.lower`` is the way in.
"""
