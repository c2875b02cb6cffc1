"""PostgreSQL's functions that DuckDB does not have, as macros."""

from __future__ import annotations

from typing import Final

from millstream.engine.functions import SERVER_VERSION
from millstream.server.postgres.catalog.relations import TYPE_NAMES
from millstream.server.postgres.types import PG_TYPES
from millstream.sql.spark_functions import SPARK_FUNCTIONS


def _format_type() -> str:
    lines = []
    for each in PG_TYPES:
        name = TYPE_NAMES.get(each.name, each.name)
        lines.append(f"WHEN {each.oid} THEN '{name}'")
        if each.array:
            lines.append(f"WHEN {each.array} THEN '{name}[]'")
    digits = "'numeric(' || ((m - 4) >> 16) || ',' || ((m - 4) & 65535) || ')'"
    text = "'character varying(' || (m - 4) || ')'"
    return (
        f"CASE WHEN o = 1700 AND m >= 4 THEN {digits} WHEN o = 1043 AND m >= 4 THEN {text} ELSE "
        f"CASE o {' '.join(lines)} ELSE '???' END END"
    )


def _regtype() -> str:
    lines = [f"WHEN '{each.name}' THEN {each.oid}" for each in PG_TYPES]
    lines += [f"WHEN '{long}' THEN {_oid(short)}" for short, long in TYPE_NAMES.items()]
    return f"CASE lower(a) {' '.join(lines)} ELSE NULL END"


def _oid(name: str) -> int:
    return next(each.oid for each in PG_TYPES if each.name == name)


_ACCESS: Final = (
    *("has_table_privilege", "has_schema_privilege", "has_database_privilege", "pg_has_role"),
    *("has_any_column_privilege", "has_column_privilege", "has_function_privilege"),
    *("has_sequence_privilege", "has_type_privilege"),
)
_VISIBLE: Final = (
    *("pg_table_is_visible", "pg_type_is_visible", "pg_function_is_visible"),
    *("pg_operator_is_visible", "pg_opclass_is_visible", "pg_collation_is_visible"),
)
_EMPTY: Final = (
    *("pg_get_expr", "obj_description", "col_description", "shobj_description"),
    *("pg_get_function_result", "pg_get_function_arguments", "pg_get_functiondef"),
    *("pg_get_function_identity_arguments", "pg_get_triggerdef", "pg_get_partkeydef"),
    *("pg_get_serial_sequence", "pg_get_ruledef", "pg_get_statisticsobjdef_columns"),
    "pg_tablespace_location",
)
_ZERO: Final = (
    *("pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_indexes_size"),
    "pg_database_size",
)
_NUMBERS: Final = "range(1, len(a) + 1)"
_NONE: Final = "NULL::VARCHAR"
_BARE: Final = "regexp_full_match(a, '[a-z_][a-z0-9_]*')"

MACROS: Final = (
    *(f"{name}(a) AS true" for name in _VISIBLE),
    *(f"{name}(a, b) AS true, (a, b, c) AS true" for name in _ACCESS),
    *(f"{name}(a) AS {_NONE}, (a, b) AS {_NONE}, (a, b, c) AS {_NONE}" for name in _EMPTY),
    *(f"{name}(a) AS 0::BIGINT" for name in _ZERO),
    f"format_type(o, m) AS {_format_type()}",
    f"ms_version() AS 'PostgreSQL {SERVER_VERSION}'",
    f"_pg_expandarray(a) AS unnest(list_transform({_NUMBERS}, lambda i: {{'x': a[i], 'n': i}}))",
    "parse_ident(a) AS string_split(a, '.')",
    f"to_regtype(a) AS {_regtype()}",
    "pg_get_userbyid(a) AS 'millstream'",
    "pg_encoding_to_char(a) AS 'UTF8'",
    "pg_char_to_encoding(a) AS 6",
    "pg_client_encoding() AS 'UTF8'",
    "pg_is_in_recovery() AS false",
    "pg_is_other_temp_schema(a) AS false",
    "pg_my_temp_schema() AS 0",
    "pg_backend_pid() AS 1",
    "pg_size_pretty(a) AS a || ' bytes'",
    "pg_relation_is_publishable(a) AS false",
    "pg_relation_is_updatable(a, b) AS 28",
    "pg_postmaster_start_time() AS now()",
    "pg_stat_get_numscans(a) AS 0",
    f"""quote_ident(a) AS CASE WHEN {_BARE} THEN a ELSE '"' || replace(a, '"', '""') || '"' END""",
    "quote_literal(a) AS '''' || replace(a, '''', '''''') || ''''",
    "inet_server_addr() AS NULL::VARCHAR",
    "inet_client_addr() AS NULL::VARCHAR",
    "inet_server_port() AS NULL::INTEGER",
    "txid_current() AS 0::BIGINT",
    "clock_timestamp() AS now()",
    "statement_timestamp() AS now()",
    "aclexplode(a) AS NULL::VARCHAR",
    "array_upper(a, n) AS CASE WHEN len(a) = 0 THEN NULL ELSE len(a) END",
    "array_lower(a, n) AS CASE WHEN len(a) = 0 THEN NULL ELSE 1 END",
    "to_char(a, b) AS a::VARCHAR",
)
"""Of each its name, parameters and meaning, as CREATE MACRO takes them."""

_FUNCTIONS = """
    abs age all any any_value array array_agg array_append array_cat array_concat array_contains
    array_distinct array_has array_length array_position array_prepend array_slice array_sort
    array_to_string ascii avg between bit_and bit_length bit_or bool_and bool_or btrim
    cardinality case cast cbrt ceil ceiling char_length character_length chr coalesce concat
    concat_ws contains corr count count_if covar_pop covar_samp cume_dist current_date
    current_time current_timestamp date_diff date_part date_trunc datediff day dayofweek
    dayofyear dense_rank ends_with epoch every exists exp extract first first_value floor format
    generate_series generate_subscripts greatest group_concat hash hex hour if ifnull ilike in
    initcap instr isfinite isnan jaccard json_array json_array_length json_extract
    json_extract_path json_extract_path_text json_extract_string json_object json_type lag last
    last_day last_value lcase lead least left len length levenshtein like list list_concat
    list_contains list_filter list_sort list_transform list_value listagg ln localtime
    localtimestamp log log10 log2 lower lpad ltrim make_date make_timestamp max max_by md5 mean
    median min min_by minute mod mode month now nth_value ntile nullif octet_length overlay
    percent_rank percentile_cont percentile_disc pi position pow power printf quantile_cont
    quantile_disc quarter radians range rank regexp_extract regexp_full_match regexp_like
    regexp_matches regexp_replace regexp_split_to_array repeat replace reverse right round row
    row_number row_to_json rpad rtrim second sign split split_part sqrt starts_with stddev
    stddev_pop stddev_samp str_split strftime string_agg string_split string_to_array strip
    strlen strpos strptime struct_extract struct_pack substr substring sum time_bucket timezone
    to_date to_hex to_json to_timestamp today translate trim trunc try_cast typeof ucase
    unicode unnest upper var_pop var_samp variance week year
"""
ALLOWED: Final = frozenset(_FUNCTIONS.split()) | {each.partition("(")[0] for each in MACROS}
"""The functions of DuckDB that a query of the catalog may call."""

_TRANSLATED: Final = frozenset(
    {"pg_get_viewdef", "pg_get_indexdef", "pg_get_constraintdef", "to_regclass", "current_schemas"}
)
_OF_SESSIONS: Final = frozenset(
    {"pg_backend_pid", "pg_client_encoding", "pg_is_in_recovery", "pg_my_temp_schema"}
    | {"pg_advisory_lock", "pg_advisory_unlock", "pg_try_advisory_lock", "txid_current"}
    | {"inet_server_addr", "inet_client_addr", "inet_server_port"}
    | {"clock_timestamp", "statement_timestamp"}
)
_MACRO_NAMES: Final = frozenset(each.partition("(")[0] for each in MACROS)
OWN_FUNCTIONS: Final = (
    (_MACRO_NAMES | _TRANSLATED) - _OF_SESSIONS - {name.lower() for name in SPARK_FUNCTIONS}
)
"""The functions that only PostgreSQL's catalog has."""
