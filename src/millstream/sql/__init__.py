"""SQL: from text to statements, from statements to compiled filters and projections.

Takes: text, and the schema of what a statement names.
Gives: checked statements; plans whose expressions are compiled for rows and for Arrow alike.
Never knows: what exists, where rows are, who asks; it does no I/O and reads no clock.
"""

from millstream.sql.dialect import Millstream
from millstream.sql.durations import duration_text, parse_duration
from millstream.sql.expr.compiled import Predicate, Projection
from millstream.sql.parse import parse, parse_expression
from millstream.sql.plan import (
    SelectPlan,
    plan_insert,
    plan_select,
    plan_update,
    plan_where,
)
from millstream.sql.render import create_source, create_table, quote_string
from millstream.sql.statements import (
    AddColumn,
    CreateSource,
    CreateTable,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Listen,
    Notify,
    Option,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    Statement,
    Unlisten,
    Update,
    WatermarkSpec,
)
from millstream.sql.whole import plan_all

__all__ = [
    "AddColumn",
    "CreateSource",
    "CreateTable",
    "Delete",
    "Describe",
    "Drop",
    "Explain",
    "Insert",
    "Listen",
    "Millstream",
    "Notify",
    "Option",
    "Predicate",
    "Projection",
    "Select",
    "SelectPlan",
    "Show",
    "ShowChanges",
    "ShowCreate",
    "Statement",
    "Unlisten",
    "Update",
    "WatermarkSpec",
    "create_source",
    "create_table",
    "duration_text",
    "parse",
    "parse_duration",
    "parse_expression",
    "plan_all",
    "plan_insert",
    "plan_select",
    "plan_update",
    "plan_where",
    "quote_string",
]
