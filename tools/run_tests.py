"""All tests, in two processes side by side: those on Spark, and the others.

Tests wait for Spark, for disks and for each other's threads much more than they compute. What the
first process says is printed as it comes, what the second says when it has ended. Arguments are
handed on to pytest.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile

ON_SPARK = ["tests/on_spark"]
OTHERS = ["src", "tests", "--ignore=tests/on_spark"]


def main(arguments: list[str]) -> int:
    """Run both, and give the worse of the two exit codes."""
    pytest = [sys.executable, "-m", "pytest", *arguments]
    with tempfile.TemporaryFile() as said:
        others = subprocess.Popen(
            [*pytest, *OTHERS, "-p", "no:cacheprovider"], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            on_spark = subprocess.call([*pytest, *ON_SPARK])
            ended = others.wait()
        except KeyboardInterrupt:
            others.send_signal(signal.SIGINT)
            on_spark, ended = 130, others.wait()
        said.seek(0)
        print("\n== the tests without Spark of their own ==", flush=True)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return max(abs(on_spark), abs(ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
