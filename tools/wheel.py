"""Builds the wheel, installs it in an empty environment, and runs README's first example there.

Neither the checkout nor the tools of its virtual environment can be imported by the example; there
is no Java on its PATH, no JAVA_HOME, and its home folder is empty. Run by ``make wheel``, which
gives it uv.
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
        programs, home = os.path.join(folder, "venv", "bin"), os.path.join(folder, "home")
        python, millstream = os.path.join(programs, "python"), os.path.join(programs, "millstream")
        os.mkdir(home)
        _run(ROOT, dict(os.environ), uv, "build", "--wheel", "--out-dir", "dist")
        (wheel,) = sorted((ROOT / "dist").glob("*.whl"), key=os.path.getmtime)[-1:]
        _run(folder, dict(os.environ), uv, "venv", "--python", sys.executable, "venv")
        _run(folder, dict(os.environ), uv, "pip", "install", "--python", python, str(wheel))
        empty = {"PATH": f"{programs}:{_programs_but_java(folder)}", "HOME": home}
        _run(folder, empty, millstream, "doctor", "--port", "0")
        _run(folder, empty, python, "-c", found[1])
        # The demo serves its console, for which the extra "server" is needed.
        _run(folder, dict(os.environ), uv, "pip", "install", "--python", python, f"{wheel}[server]")
        _run(folder, empty, millstream, "demo", "--seconds", "3")
    print(f"{wheel.relative_to(ROOT)} works")


def _programs_but_java(folder: str) -> str:
    """Make a folder with links to the machine's programs, but for Java."""
    links = Path(folder, "programs")
    links.mkdir()
    for program in [each for place in ("/bin", "/usr/bin") for each in Path(place).iterdir()]:
        link = links / program.name
        if not program.name.startswith("java") and not link.is_symlink():
            link.symlink_to(program)
    return str(links)


def _run(folder: str | Path, environment: dict[str, str], *command: str) -> None:
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
