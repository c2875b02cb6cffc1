"""All views of a database: from a statement to a running query, and back to nothing.

Takes statements that were read, and definitions that the catalog has. Gives running views. The one
place where the planner, Spark, the rows of a view and the log come together.
"""

from millstream.viewing.planning import Planned
from millstream.viewing.running import Running
from millstream.viewing.views import HIDDEN, Views

__all__ = ["HIDDEN", "Planned", "Running", "Views"]
