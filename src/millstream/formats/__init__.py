"""Rows from anything: tuples, dicts, dataclasses, Arrow, pandas, polars, JSON, CSV.

Takes: whatever a caller has, and the schema that it is for.
Gives: batches whose values are checked against that schema, or an error that names row and column.
Never knows: where the rows go.
"""
