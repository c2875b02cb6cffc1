"""Databases that earlier versions wrote, kept in tests/data/databases by tools/keep_database.py."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

KEPT = Path(__file__).parent / "data" / "databases"
VERSIONS = sorted(each.name.removesuffix(".tar.gz") for each in KEPT.glob("*.tar.gz"))
each_version = pytest.mark.parametrize("version", VERSIONS)


def unpack(version, name, folder):
    """Copy the database ``name`` of a version into a folder; its path, and what it must hold."""
    with tarfile.open(KEPT / f"{version}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder / name, json.loads((KEPT / f"{version}.json").read_text())[name]


def as_json(rows):
    """Rows as the files of what a database must hold have them, sorted."""
    return sorted(json.loads(json.dumps(rows, default=repr)), key=json.dumps)
