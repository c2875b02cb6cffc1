"""The build of the package, for hatchling: the engine's jar is made before files are gathered."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "tools"))

from compile_java import compile_java, compiler, is_done


class JarHook(BuildHookInterface):
    """Of the wheel, and of an editable install, whose jar lies in the checkout."""

    def dependencies(self) -> list[str]:
        """PySpark, to compile against; none where ``make`` has compiled already."""
        if is_done():
            return []
        compiler()  # without one, it is said before PySpark is fetched
        return ["pyspark==4.3.*"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the jar."""
        del version, build_data
        compile_java()
