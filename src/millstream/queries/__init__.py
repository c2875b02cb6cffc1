"""Ad-hoc queries: the rows that a SELECT gives now.

Takes: a plan; the tables, views and logs that it reads.
Gives: a result; the current rows with which a subscription begins.
Never knows: SQL text, sessions.
"""
