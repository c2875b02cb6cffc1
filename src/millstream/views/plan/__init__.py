"""Planning: from a statement to Spark SQL over the logs that it reads.

Takes: a parsed query, and the columns of what it names.
Gives: a ``ViewPlan``: Spark SQL, its inputs, its windows and its order.
Never knows: Spark, what exists, where rows are. ``planner.plan_query`` is the way in.
"""
