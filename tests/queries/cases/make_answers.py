"""Asks Spark the queries of ``queries.sql`` and writes what it says to ``answers.jsonl``.

    python tests/queries/cases/make_answers.py

A query is one line. Where our SQL and Spark's are not the same, the line after it begins with
``-- spark:`` and has Spark's.
"""

import importlib.util
import json
import logging
import os
import pathlib
import time

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("adhoc_rows", HERE / "rows.py")
given = importlib.util.module_from_spec(spec)
spec.loader.exec_module(given)


def queries():
    """Each query as we write it, and as Spark does."""
    pairs = []
    for line in (HERE / "queries.sql").read_text().splitlines():
        if line.startswith("-- spark: "):
            pairs[-1][1] = line.removeprefix("-- spark: ")
        elif line and not line.startswith("--"):
            pairs.append([line, line])
    return pairs


def spark_type(of):
    if of.kind == "STRUCT":
        fields = zip(of.names, of.children, strict=True)
        return f"STRUCT<{', '.join(f'{name}: {spark_type(child)}' for name, child in fields)}>"
    if of.kind == "ARRAY":
        return f"ARRAY<{spark_type(of.children[0])}>"
    return {"VARCHAR": "STRING", "INTEGER": "INT", "REAL": "FLOAT"}.get(of.kind, of.sql)


def main():
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the tests read this file, without Spark

    os.environ["TZ"] = "UTC"  # Spark's times come to Python in the local zone
    time.tzset()
    logging.disable()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for name, schema in given.SCHEMAS.items():
        columns = [f"`{each.name}` {spark_type(each.type)}" for each in schema.columns]
        rows = [(*row, place) for place, row in enumerate(given.ROWS[name])]
        frame = spark.createDataFrame(rows, ", ".join([*columns, "_lsn BIGINT"]))
        hidden = frame if name == "trades" else frame.drop("_lsn")
        hidden.coalesce(1).createOrReplaceTempView(name)
    with (HERE / "answers.jsonl").open("w") as file:
        for ours, sparks in queries():
            file.write(json.dumps([ours, *ask(spark, sparks)], ensure_ascii=False) + "\n")
    spark.stop()


def ask(spark, sql):
    try:
        frame = spark.sql(sql.replace("VARCHAR", "STRING"))
        types = [field.dataType.simpleString() for field in frame.schema.fields]
        rows = [given.plain(tuple(row)) for row in frame.collect()]
        return types, rows if given.is_ordered(sql) else sorted(rows, key=repr)
    except Exception as error:  # what Spark raises depends on where it was
        return "fails", getattr(error, "getCondition", lambda: None)() or type(error).__name__


if __name__ == "__main__":
    main()
