"""The planner: queries as Spark SQL over one feed. ``view.plan_view`` is the way in."""
