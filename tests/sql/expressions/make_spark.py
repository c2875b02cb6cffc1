"""Asks Spark what ``spark.tsv`` and ``spark_stores.tsv`` do not say yet, and writes its answers.

    python tests/sql/expressions/make_spark.py [--all]

A new case is a new line: of ``spark.tsv`` an expression alone, of ``spark_stores.tsv`` an
expression and the type of a column that it is stored in. With ``--all`` every line is asked again.
"""

import logging
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent


def session(directory):
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the tests find this file, without Spark

    os.environ["TZ"] = "UTC"  # Spark's times come to Python in the local zone
    time.tzset()
    logging.disable()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.storeAssignmentPolicy", "ANSI")
        .config("spark.sql.warehouse.dir", directory)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main():
    with tempfile.TemporaryDirectory() as directory:
        spark = session(directory)
        rewrite("spark.tsv", 3, lambda sql, *_: [sql, *answer(spark, sql)])
        rewrite("spark_stores.tsv", 3, lambda sql, of, *_: [sql, of, *stored(spark, sql, of)])
        spark.stop()


def rewrite(name, columns, ask):
    path = HERE / name
    lines = []
    for line in path.read_text().splitlines():
        parts = line.split("\t")
        known = len(parts) == columns and "--all" not in sys.argv
        lines.append(line if known else "\t".join(ask(*parts)))
    path.write_text("\n".join(lines) + "\n")


def answer(spark, sql):
    """The type and the value of an expression, or the error."""
    try:
        frame = spark.sql(f"SELECT {sql.replace('VARCHAR', 'STRING')} AS x")
        value = frame.collect()[0][0]
    except Exception as error:  # what Spark raises depends on where it was
        return ["fails", condition(error)]
    return [frame.schema.fields[0].dataType.simpleString(), repr(value)]


def stored(spark, sql, of):
    """What a column of a type has after an expression was stored in it, or the error."""
    spark.sql("DROP TABLE IF EXISTS stores")
    spark.sql(f"CREATE TABLE stores (x {of}) USING parquet")
    try:
        spark.sql(f"INSERT INTO stores SELECT {sql}")
    except Exception as error:  # what Spark raises depends on where it was
        return [f"fails {condition(error)}"]
    return [repr(spark.sql("SELECT x FROM stores").collect()[0][0])]


def condition(error):
    return getattr(error, "getCondition", lambda: None)() or type(error).__name__


if __name__ == "__main__":
    main()
