"""Views: from a statement to a running query, and back to nothing.

Takes: statements that were parsed, definitions that the catalog has, results of Spark.
Gives: running views, whose results become commits of their logs, shown now or later.
Never knows: who subscribes. The one place where planner, Spark, current rows and log come together.
"""

from millstream.views.planning import Planned
from millstream.views.running import Running
from millstream.views.views import HIDDEN, Views

__all__ = ["HIDDEN", "Planned", "Running", "Views"]
