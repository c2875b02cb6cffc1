from __future__ import annotations

import subprocess
import sys

import pytest

import millstream


def in_a_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_import_loads_nothing_heavy():
    code = "import millstream, sys; print(' '.join(sorted(sys.modules)))"
    loaded = set(in_a_new_process(code).split())
    for heavy in (
        "pyarrow",
        "pyspark",
        "pandas",
        "polars",
        "numpy",
        "sqlglot",
        "starlette",
        "rich",
    ):
        assert heavy not in loaded


def test_the_log_loads_neither_spark_nor_pandas():
    code = "import millstream, sys; millstream.Log; print(' '.join(sorted(sys.modules)))"
    loaded = set(in_a_new_process(code).split())
    assert "pyarrow" in loaded
    assert not loaded & {"pyspark", "pandas", "polars", "sqlglot", "starlette", "rich"}


def test_the_database_leaves_pandas_to_a_thread():
    code = "import millstream.database, sys; print(' '.join(sorted(sys.modules)))"
    loaded = set(in_a_new_process(code).split())
    assert "pyarrow" in loaded
    assert not loaded & {"pyspark", "pandas", "polars"}


def test_the_public_names_are_there():
    for name in millstream.__all__:
        assert getattr(millstream, name) is not None
        assert name in dir(millstream)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        millstream.nonsense  # noqa: B018
