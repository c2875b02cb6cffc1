"""Builds the wheel, installs it in an empty environment, and runs README's first example there.

Neither the checkout nor the tools of its virtual environment can be imported by the example. Run
by ``make wheel``, which gives it uv.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile(r"^## A first example\n.*?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main(uv: str) -> None:
    """Build, install, run."""
    found = EXAMPLE.search((ROOT / "README.md").read_text())
    if found is None:
        sys.exit("README.md has no first example")
    uv = os.path.abspath(uv)
    with tempfile.TemporaryDirectory(prefix="millstream-wheel-") as folder:
        python = os.path.join(folder, "venv", "bin", "python")
        _run(ROOT, uv, "build", "--wheel", "--out-dir", "dist")
        (wheel,) = sorted((ROOT / "dist").glob("*.whl"), key=os.path.getmtime)[-1:]
        _run(folder, uv, "venv", "--python", sys.executable, "venv")
        _run(folder, uv, "pip", "install", "--python", python, str(wheel))
        _run(folder, python, "-m", "millstream", "doctor", "--port", "0")
        _run(folder, python, "-c", found[1])
    print(f"{wheel.relative_to(ROOT)} works")


def _run(folder: str | Path, *command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
