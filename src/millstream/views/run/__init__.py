"""Running: the feed of a view, its real-time query, its results, and who keeps it running.

Takes: a view's plan and the logs that it reads.
Gives: weighted changes, each flush with the LSN up to which it counts.
Never knows: what becomes of the changes, and how views are named and stored.
"""
