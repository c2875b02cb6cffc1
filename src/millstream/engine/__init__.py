"""The running database: opened and recovered, its statements carried out, its sessions.

Takes: statements that were parsed, and rows.
Gives: results, subscriptions, what SHOW and EXPLAIN print.
Never knows: the transport of who asks.
"""
