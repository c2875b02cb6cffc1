"""The running database: opened and recovered, its statements, its sessions.

Takes: a directory; statements, and rows.
Gives: results, subscriptions, what SHOW and EXPLAIN print.
Never knows: the transport through which a statement or a row arrives.
"""
