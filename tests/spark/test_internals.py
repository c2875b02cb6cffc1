"""Private members of PySpark are used in one file; importing PySpark says nothing."""

import re
import subprocess
import sys
from pathlib import Path

import millstream

PRIVATE = re.compile(
    r"\b(?!self\b)\w+(?:\(\))?\._(jvm|jsc|jdf|jsq|jwrite|jsparkSession|gateway|gateway_client"
    r"|active_spark_context|instantiatedSession)\b"
)


def test_private_members_of_pyspark_are_in_one_file():
    root = Path(millstream.__file__).parent
    found = {
        str(path.relative_to(root)): PRIVATE.findall(path.read_text())
        for path in root.rglob("*.py")
        if PRIVATE.search(path.read_text())
    }
    assert list(found) == ["spark/internals.py"]


def test_pyspark_is_imported_without_a_word():
    code = (
        "import warnings; before = list(warnings.filters)\n"
        "from millstream.spark.internals import import_pyspark; import_pyspark()\n"
        "import sys; assert 'pyspark.testing.utils' in sys.modules\n"
        "from pyspark.sql.types import StructType; StructType()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stderr, done.stdout, done.returncode) == ("", "", 0)
