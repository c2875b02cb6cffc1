"""Results in a notebook: a table that changes as the result of a query does.

Takes: a subscription, of a database in this process or of a server.
Gives: a widget for Jupyter, VS Code and marimo, by ``anywidget``.
Never knows: SQL, the engine, the network.
"""

from millstream.notebook.live_rows import LiveRows
from millstream.notebook.widget import LiveTable, watch

__all__ = ["LiveRows", "LiveTable", "watch"]
