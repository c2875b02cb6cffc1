"""SQL: from text to statements, from statements to compiled filters and projections.

Takes: text, and the schema of what a statement names.
Gives: checked statements; plans whose expressions are compiled for rows and for Arrow alike.
Never knows: what exists, where rows are, whose statement it is; it does no I/O and reads no clock.
"""

from millstream.sql.dialect import Millstream
from millstream.sql.expressions.compiled import Predicate, Projection
from millstream.sql.filter import (
    SelectPlan,
    plan_all,
    plan_insert,
    plan_select,
    plan_update,
    plan_where,
)
from millstream.sql.inputs import Input
from millstream.sql.parameter_types import parameter_types
from millstream.sql.points import Point, point_of
from millstream.sql.statements.durations import duration_text, parse_duration
from millstream.sql.statements.parameters import ParameterValues, Unknown
from millstream.sql.statements.parse import parse, parse_expression, parse_marked
from millstream.sql.statements.query import as_query
from millstream.sql.statements.render import create_sink, create_source, create_table
from millstream.sql.statements.statement import (
    AddColumn,
    CopyFrom,
    CopyTo,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Emit,
    Explain,
    Insert,
    Listen,
    Notify,
    Option,
    Pause,
    Query,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    SkipDamage,
    Statement,
    Unlisten,
    Update,
    WatermarkSpec,
)

__all__ = [
    "AddColumn",
    "CopyFrom",
    "CopyTo",
    "CreateSink",
    "CreateSource",
    "CreateTable",
    "CreateView",
    "Delete",
    "Describe",
    "Drop",
    "Emit",
    "Explain",
    "Input",
    "Insert",
    "Listen",
    "Millstream",
    "Notify",
    "Option",
    "ParameterValues",
    "Pause",
    "Point",
    "Predicate",
    "Projection",
    "Query",
    "Select",
    "SelectPlan",
    "Show",
    "ShowChanges",
    "ShowCreate",
    "SkipDamage",
    "Statement",
    "Unknown",
    "Unlisten",
    "Update",
    "WatermarkSpec",
    "as_query",
    "create_sink",
    "create_source",
    "create_table",
    "duration_text",
    "parameter_types",
    "parse",
    "parse_duration",
    "parse_expression",
    "parse_marked",
    "plan_all",
    "plan_insert",
    "plan_select",
    "plan_update",
    "plan_where",
    "point_of",
]
