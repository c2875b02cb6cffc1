"""How any reader follows a log: replay from an LSN, then the live changes, at the reader's pace.

Takes: batches that the dispatcher offers, and the log for what was before.
Gives: one ordered sequence of batches; what a slow reader misses is reported in gaps.
Never knows: SQL text, threads of consumers. Subscriptions and the feeds of views stand on it.
"""
