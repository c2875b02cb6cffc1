"""Rows in files: Parquet, CSV, JSON lines, Arrow IPC, on this machine's disk or in an object store.

Takes: the path or URL of a file, how to reach its store, and the schema that its rows are for.
Gives: checked batches with the offset after each, and files that appear whole or not at all.
Never knows: where rows go to or come from, and which files are done.
"""
