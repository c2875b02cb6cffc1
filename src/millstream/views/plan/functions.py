"""Functions: which are aggregates, and which no view can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from millstream.views.plan.errors import ErrorReporter

_AGGREGATES_TEXT = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if
    count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis
    last last_value listagg max max_by mean measure median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev
    stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg
    try_avg try_sum tuple_intersection_agg_double tuple_intersection_agg_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer
    var_pop var_samp variance vector_avg vector_sum
"""
AGGREGATES = frozenset(_AGGREGATES_TEXT.split())
"""Spark's aggregate functions."""

ORDERED = frozenset(
    {"array_agg", "collect_list", "listagg", "string_agg", "any_value"}
    | {"first", "first_value", "last", "last_value"}
)
"""Aggregates that take the order of their input: ``agg(x ORDER BY y)``."""

_UNORDERED = frozenset(
    {"avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "collect_set", "corr", "count"}
    | {"count_if", "every", "max", "mean", "median", "min", "mode", "some", "std", "stddev"}
    | {"stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp", "variance"}
)

_CLOCKS = frozenset(
    {"current_timestamp", "now", "current_date", "curdate", "current_time", "localtime"}
    | {"localtimestamp", "current_timezone"}
)
_DICE = frozenset(
    {"rand", "randn", "random", "uuid", "shuffle", "randstr", "uniform", "aes_encrypt"}
    | {"monotonically_increasing_id", "spark_partition_id", "input_file_name"}
    | {"input_file_block_start", "input_file_block_length"}
)
_OUTSIDE = frozenset(
    {"current_user", "user", "session_user", "current_catalog", "current_database"}
    | {"current_schema", "version", "java_method", "reflect", "try_reflect", "current_path"}
)

NOW_HINT = (
    "A view is a function of its log: push the time as a column; or compare NOW() with a column,"
    " in WHERE: ts > NOW() - INTERVAL '5 minutes'."
)
"""How a view may use the time."""

_UNREPEATABLE = (
    (_CLOCKS, NOW_HINT),
    (_DICE, "A view is a function of its log: push the value as a column."),
    (_OUTSIDE, "A view is a function of its log: write the value itself."),
)


def function_name(tree: exp.Expr) -> str:
    """Return the name of the function that a tree calls, in small letters; empty if none.

    >>> function_name(exp.Anonymous(this="Max", expressions=[]))
    'max'
    """
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).lower()
    is_operator = isinstance(tree, exp.Binary | exp.Case | exp.Cast)
    return str(tree.sql_name()).lower() if isinstance(tree, exp.Func) and not is_operator else ""


def check_repeatable(tree: exp.Expr, errors: ErrorReporter) -> None:
    """Refuse a query with a function whose value is another one each time.

    Raises:
        SqlUnsupportedError: at its place, with what to write instead.
    """
    for each in tree.walk():
        name = function_name(each)
        is_clock = name == "unix_timestamp" and not each.expressions
        for names, hint in _UNREPEATABLE:
            if name in names or (is_clock and names is _CLOCKS):
                errors.refuse(each, f"{name.upper()} is not supported in a view", hint)


def order_within(tree: exp.Expr, errors: ErrorReporter) -> None:
    """Write ORDER BY among the arguments of an aggregate as WITHIN GROUP, which Spark can read.

    It is left out of an aggregate whose result does not depend on an order.

    Raises:
        SqlUnsupportedError: the function takes no order.
    """
    for call in list(tree.find_all(exp.Anonymous)):
        last = call.expressions[-1] if call.expressions else None
        if not any(isinstance(each, exp.Order) for each in call.expressions):
            continue
        name = call.name.lower()
        if not isinstance(last, exp.Order) or name not in ORDERED | _UNORDERED:
            hint = "Leave it out, or use ARRAY_AGG, STRING_AGG, FIRST or LAST."
            errors.refuse(call, f"ORDER BY within {name.upper()}(...) is not supported", hint)
        call.set("expressions", [*call.expressions[:-1], last.this])
        if name in ORDERED:
            order = exp.Order(expressions=last.expressions)
            made = exp.WithinGroup(this=call.copy(), expression=order)
            call.replace(made)


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether a tree is the call of an aggregate, with what belongs to it."""
    if isinstance(tree, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        return True
    return function_name(tree) in AGGREGATES


def has_aggregate(tree: exp.Expr) -> bool:
    """Whether a tree is an aggregate, or has one in it that is not of a subquery."""
    parts = tree.walk(prune=lambda each: isinstance(each, exp.Query))
    return any(is_aggregate(each) for each in parts if not isinstance(each, exp.Column))
