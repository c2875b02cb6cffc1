"""Partitions: a view as several queries over disjoint keys, fed together, merged into one result.

Takes: what one query of a view takes, and the key that all of its operators have in common.
Gives: what one query gives: whole commits in LSN order.
Never knows: how views are named and stored.
"""
