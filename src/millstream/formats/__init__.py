"""Rows from anything: tuples, dicts, dataclasses, Arrow, pandas, polars, JSON, CSV.

Takes: whatever a caller has, and the schema that it is for. Data goes through
    ``batches.as_batches``, text through ``json_text.json_rows`` and ``csv_text.csv_rows``; both
    stand on ``rows.RowShape``, which also takes a single row.
Gives: batches whose values are checked against that schema, or an error that names row and column.
Never knows: where the rows go.
"""
