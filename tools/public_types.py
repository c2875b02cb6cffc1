"""Whether type checkers know the type of every public name: ``pyright --verifytypes``.

    .venv/bin/python tools/public_types.py

Public is what ``millstream`` exports and what docs/api documents, with all their members. One whose
type is unknown, or which a type checker would have to infer, is printed and fails the run. The last
line is pyright's own score, which counts every name of every module.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import millstream as ms

ROOT = Path(__file__).parents[1]
DOCUMENTED = re.compile(r"^::: (millstream\.[\w.]+)", re.MULTILINE)
LEFT_TO_INFERENCE = re.compile(
    r"missing type annotation|Ambiguous|[Tt]ype unknown|is unknown|has unknown type"
)


def public_names() -> set[str]:
    """What users import."""
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    return {f"millstream.{name}" for name in ms.__all__} | set(DOCUMENTED.findall(pages))


def owners(name: str) -> set[str]:
    """Where a public name, and all that a class inherits of ours, are defined."""
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    if inspect.ismodule(thing):
        return {thing.__name__}
    if not inspect.isclass(thing):
        return {name, f"{thing.__module__}.{last}"} if inspect.isfunction(thing) else {name}
    places = [(each.__module__, each.__qualname__) for each in thing.__mro__]
    return {f"{at}.{called}" for at, called in places if at.startswith("millstream")}


def verified() -> dict[str, Any]:
    """What pyright says of the package."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    command += ["--verifytypes", "millstream", "--ignoreexternal"]
    paths = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
    }  # it does not follow an editable install
    done = subprocess.run(command, env=paths, stdout=subprocess.PIPE, check=False)
    found: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return found


def main() -> int:
    """Print what is not known; 1 if there is anything."""
    public = set[str]().union(*map(owners, public_names()))
    found, unknown = verified(), list[str]()
    for symbol in found["symbols"]:
        name = symbol["name"]
        if name in public or name.rpartition(".")[0] in public:
            messages = [each["message"].replace("\n", ";") for each in symbol["diagnostics"]]
            unknown += [f"{name}: {each}" for each in messages if LEFT_TO_INFERENCE.search(each)]
    print("\n".join(sorted(unknown)), end="\n" if unknown else "")
    print(f"public names without a declared type: {len(unknown)}; ", end="")
    print(f"pyright's score of all names: {found['completenessScore']:.1%}")
    return min(len(unknown), 1)


if __name__ == "__main__":
    sys.exit(main())
