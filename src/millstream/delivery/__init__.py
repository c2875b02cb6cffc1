"""How any reader follows a log: replay from an LSN, then the live changes, at the reader's pace.

Takes: batches that the dispatcher offers, and the log for what was before.
Gives: one ordered sequence of batches; what a slow reader misses, by its policy, as gaps.
Never knows: who reads, a subscription or the feed of a view; SQL text; threads of consumers.
"""
