"""Ad-hoc queries: the rows that a SELECT gives now.

Takes: a plan, and the relations that it reads as Arrow tables.
Gives: an Arrow table.
Never knows: SQL text of the user, who asks.
"""
