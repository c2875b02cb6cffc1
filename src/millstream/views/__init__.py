"""Views: planned, created, kept up to date by a query, opened again, dropped.

Takes: CREATE VIEW statements, definitions of the catalog, results of Spark.
Gives: running views, whose results become commits of their logs, shown at once or later.
Never knows: subscriptions, sessions. The one package where planner, Spark, state and log meet.
"""

from millstream.views.definitions import HIDDEN
from millstream.views.planning import PlannedView
from millstream.views.running import RunningView
from millstream.views.views import Views

__all__ = ["HIDDEN", "PlannedView", "RunningView", "Views"]
