from __future__ import annotations


def test_figures_without_spark(cli):
    done = cli("bench", "--rows", "20000", "--no-spark", check=0)
    assert "push, row by row" in done.stdout
    assert "push to a filter's subscriber" in done.stdout
    assert "Spark" not in done.stdout
