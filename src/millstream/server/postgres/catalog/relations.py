"""The relations of ``pg_catalog`` and ``information_schema``, made of what exists.

Columns that clients ask for and nothing here has are NULL, 0, false or empty, as they would be in a
PostgreSQL that has no such thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.server.postgres.types import BY_OID, PG_TYPES, VARCHAR, oid_of, typmod_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.catalog import Definition
    from millstream.model.schema import Column

    Rows = Iterator[tuple[Any, ...]]

OWNER: Final = 10
DATABASE: Final = 5
PG_CATALOG, PUBLIC, INFORMATION_SCHEMA = 11, 2200, 13000
FIRST: Final = 16384
"""The first OID of what users make, as in PostgreSQL."""
_ARRAY_RECV: Final = 2400
"""The function by which some clients know that a type is an array."""
_OIDS: Final = 2**31 - 2**20

_AS: Final = re.compile(r"\bAS\s+(?=SELECT|WITH|\()", re.IGNORECASE)
_ARROW: Final = {
    "i": pa.int64(),
    "t": pa.string(),
    "b": pa.bool_(),
    "f": pa.float64(),
    "I": pa.list_(pa.int64()),
    "T": pa.list_(pa.string()),
}

COLUMNS: Final = {
    "pg_namespace": "oid:i nspname:t nspowner:i nspacl:T",
    "pg_class": """oid:i relname:t relnamespace:i reltype:i reloftype:i relowner:i relam:i
        relfilenode:i reltablespace:i relpages:i reltuples:f relallvisible:i reltoastrelid:i
        relhasindex:b relisshared:b relpersistence:t relkind:t relnatts:i relchecks:i relhasrules:b
        relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b
        relreplident:t relispartition:b relrewrite:i relacl:T reloptions:T relpartbound:t xmin:i""",
    "pg_attribute": """attrelid:i attname:t atttypid:i attlen:i attnum:i attndims:i atttypmod:i
        attnotnull:b atthasdef:b atthasmissing:b attidentity:t attgenerated:t attisdropped:b
        attislocal:b attinhcount:i attcollation:i attacl:T attoptions:T attstorage:t
        attcompression:t attstattarget:i attfdwoptions:T attmissingval:t""",
    "pg_type": """oid:i typname:t typnamespace:i typowner:i typlen:i typbyval:b typtype:t
        typcategory:t typispreferred:b typisdefined:b typdelim:t typrelid:i typelem:i typarray:i
        typbasetype:i typtypmod:i typnotnull:b typcollation:i typdefault:t typinput:i typoutput:i
        typreceive:i typsend:i typndims:i typsubscript:i typacl:T""",
    "pg_index": """indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indisprimary:b
        indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indisready:b indislive:b
        indisreplident:b indnullsnotdistinct:b indkey:I indcollation:I indclass:I indoption:I
        indexprs:t indpred:t indcheckxmin:b""",
    "pg_constraint": """oid:i conname:t connamespace:i contype:t condeferrable:b condeferred:b
        convalidated:b conrelid:i contypid:i conindid:i conparentid:i confrelid:i confupdtype:t
        confdeltype:t confmatchtype:t conislocal:b coninhcount:i connoinherit:b conkey:I confkey:I
        conbin:t""",
    "pg_database": """oid:i datname:t datdba:i encoding:i datcollate:t datctype:t datistemplate:b
        datallowconn:b datconnlimit:i dattablespace:i datacl:T daticulocale:t datlocprovider:t
        datcollversion:t""",
    "pg_roles": """oid:i rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b
        rolcanlogin:b rolreplication:b rolconnlimit:i rolpassword:t rolvaliduntil:t rolbypassrls:b
        rolconfig:T""",
    "pg_user": "usename:t usesysid:i usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t",
    "pg_tables": """schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b
        hastriggers:b rowsecurity:b""",
    "pg_views": "schemaname:t viewname:t viewowner:t definition:t",
    "pg_matviews": "schemaname:t matviewname:t matviewowner:t definition:t ispopulated:b",
    "pg_indexes": "schemaname:t tablename:t indexname:t tablespace:t indexdef:t",
    "pg_settings": "name:t setting:t unit:t category:t short_desc:t context:t vartype:t source:t",
    "pg_am": "oid:i amname:t amhandler:i amtype:t",
    "pg_tablespace": "oid:i spcname:t spcowner:i spcacl:T spcoptions:T",
    "pg_attrdef": "oid:i adrelid:i adnum:i adbin:t",
    "pg_auth_members": "roleid:i member:i grantor:i admin_option:b",
    "pg_cast": "oid:i castsource:i casttarget:i castfunc:i castcontext:t castmethod:t",
    "pg_collation": "oid:i collname:t collnamespace:i collowner:i collprovider:t collencoding:i",
    "pg_depend": """classid:i objid:i objsubid:i refclassid:i refobjid:i refobjsubid:i
        deptype:t""",
    "pg_description": "objoid:i classoid:i objsubid:i description:t",
    "pg_shdescription": "objoid:i classoid:i description:t",
    "pg_enum": "oid:i enumtypid:i enumsortorder:f enumlabel:t",
    "pg_event_trigger": "oid:i evtname:t evtevent:t evtowner:i evtfoid:i evtenabled:t evttags:T",
    "pg_extension": "oid:i extname:t extowner:i extnamespace:i extrelocatable:b extversion:t",
    "pg_foreign_data_wrapper": "oid:i fdwname:t fdwowner:i fdwoptions:T",
    "pg_foreign_server": "oid:i srvname:t srvowner:i srvfdw:i srvtype:t srvoptions:T",
    "pg_foreign_table": "ftrelid:i ftserver:i ftoptions:T",
    "pg_inherits": "inhrelid:i inhparent:i inhseqno:i inhdetachpending:b",
    "pg_language": "oid:i lanname:t lanowner:i",
    "pg_opclass": "oid:i opcname:t opcnamespace:i opcowner:i opcmethod:i opcintype:i opcdefault:b",
    "pg_operator": "oid:i oprname:t oprnamespace:i oprleft:i oprright:i oprresult:i",
    "pg_partitioned_table": "partrelid:i partstrat:t partnatts:i partattrs:I",
    "pg_policy": """oid:i polname:t polrelid:i polcmd:t polpermissive:b polroles:I polqual:t
        polwithcheck:t""",
    "pg_proc": """oid:i proname:t pronamespace:i proowner:i prolang:i prokind:t proretset:b
        prorettype:i proargtypes:I proargnames:T prosrc:t provolatile:t pronargs:i""",
    "pg_publication": """oid:i pubname:t pubowner:i puballtables:b pubinsert:b pubupdate:b
        pubdelete:b pubtruncate:b pubviaroot:b""",
    "pg_publication_rel": "oid:i prpubid:i prrelid:i prqual:t prattrs:I",
    "pg_publication_namespace": "oid:i pnpubid:i pnnspid:i",
    "pg_range": "rngtypid:i rngsubtype:i rngmultitypid:i",
    "pg_rewrite": "oid:i rulename:t ev_class:i ev_type:t ev_enabled:t is_instead:b",
    "pg_sequence": "seqrelid:i seqtypid:i seqstart:i seqincrement:i seqmax:i seqmin:i seqcycle:b",
    "pg_sequences": "schemaname:t sequencename:t sequenceowner:t",
    "pg_stat_activity": """datid:i datname:t pid:i usename:t application_name:t state:t query:t
        backend_type:t""",
    "pg_stat_user_tables": "relid:i schemaname:t relname:t n_live_tup:i n_dead_tup:i",
    "pg_statistic_ext": """oid:i stxrelid:i stxname:t stxnamespace:i stxowner:i stxkind:T
        stxkeys:I stxstattarget:i""",
    "pg_subscription": "oid:i subname:t subdbid:i subowner:i subenabled:b",
    "pg_timezone_names": "name:t abbrev:t is_dst:b",
    "pg_trigger": """oid:i tgrelid:i tgname:t tgfoid:i tgtype:i tgenabled:t tgisinternal:b
        tgconstraint:i tgparentid:i tgdeferrable:b tginitdeferred:b""",
    "information_schema.schemata": "catalog_name:t schema_name:t schema_owner:t",
    "information_schema.tables": """table_catalog:t table_schema:t table_name:t table_type:t
        self_referencing_column_name:t reference_generation:t is_insertable_into:t is_typed:t""",
    "information_schema.views": """table_catalog:t table_schema:t table_name:t view_definition:t
        check_option:t is_updatable:t is_insertable_into:t""",
    "information_schema.columns": """table_catalog:t table_schema:t table_name:t column_name:t
        ordinal_position:i column_default:t is_nullable:t data_type:t character_maximum_length:i
        numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i
        udt_catalog:t udt_schema:t udt_name:t is_identity:t is_generated:t is_updatable:t""",
    "information_schema.table_constraints": """constraint_catalog:t constraint_schema:t
        constraint_name:t table_catalog:t table_schema:t table_name:t constraint_type:t""",
    "information_schema.key_column_usage": """constraint_catalog:t constraint_schema:t
        constraint_name:t table_catalog:t table_schema:t table_name:t column_name:t
        ordinal_position:i position_in_unique_constraint:i""",
    "information_schema.constraint_column_usage": """table_catalog:t table_schema:t table_name:t
        column_name:t constraint_catalog:t constraint_schema:t constraint_name:t""",
    "information_schema.referential_constraints": """constraint_catalog:t constraint_schema:t
        constraint_name:t unique_constraint_schema:t unique_constraint_name:t match_option:t
        update_rule:t delete_rule:t""",
    "information_schema.sequences": "sequence_catalog:t sequence_schema:t sequence_name:t",
    "information_schema.routines": "routine_schema:t routine_name:t routine_type:t data_type:t",
    # not of PostgreSQL: what functions of it look up
    "ms_definitions": "oid:i name:t qualified:t definition:t",
}
"""The columns of each relation, and their types: i, t, b, f; I and T are lists."""

_CATEGORIES: Final = {
    "bool": "B",
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric", "oid"), "N"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "S"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "D"),
    "interval": "T",
    "unknown": "X",
}
TYPE_NAMES: Final = {
    "bool": "boolean",
    "int8": "bigint",
    "int4": "integer",
    "int2": "smallint",
    "float8": "double precision",
    "float4": "real",
    "bpchar": "character",
    "varchar": "character varying",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""The names that ``format_type`` gives, where they are not those of ``pg_type``."""
_SCHEMAS: Final = (
    (PG_CATALOG, "pg_catalog"),
    (PUBLIC, "public"),
    (INFORMATION_SCHEMA, "information_schema"),
)
_PRECISIONS: Final = {"int2": (16, 2, 0), "int4": (32, 2, 0), "int8": (64, 2, 0)} | {
    "float4": (24, 2, None),
    "float8": (53, 2, None),
}


@dataclass(frozen=True, slots=True)
class Relation:
    """What exists, with its numbers.

    Attributes:
        definition: it.
        oid: its own number.
        index: that of the index of its key; 0 when it has none.
    """

    definition: Definition
    oid: int
    index: int

    @property
    def kind(self) -> str:
        """Of ``relkind``: views are materialized, streams are views, sources are tables."""
        return {"view": "m", "stream": "v"}.get(self.definition.kind, "r")

    @property
    def key(self) -> list[int]:
        """The numbers of its key's columns, from 1."""
        names = self.definition.schema.names
        return [names.index(name) + 1 for name in self.definition.schema.key]

    @property
    def key_name(self) -> str:
        """The name of the constraint."""
        return f"{self.definition.name}_pkey"


class Relations:
    """The relations, each made when it is asked for.

    Args:
        definitions: what the session may see.
        settings: of the connection.
        user: its name.
        tenant: the tenant whose session it is: it is not shown the texts of views, which may name
            values of other tenants. None: all are shown.
    """

    def __init__(
        self,
        definitions: Sequence[Definition],
        settings: Sequence[tuple[str, str]],
        user: str,
        tenant: str | None,
    ) -> None:
        self._tenant = tenant
        self._definitions = definitions
        self._settings = settings
        self._user = user

    @cached_property
    def all(self) -> list[Relation]:
        """What exists. OIDs follow from when it was made, so they stay what they are."""
        made: list[Relation] = []
        taken: set[int] = set()
        for each in sorted(self._definitions, key=lambda each: each.born):
            oid = FIRST + 2 * each.born % _OIDS
            while oid in taken:
                oid += 2
            taken.add(oid)
            made.append(Relation(each, oid, oid + 1 if each.schema.key else 0))
        return made

    def table(self, name: str) -> pa.Table | None:
        """A relation by its name; None when there is none."""
        columns = COLUMNS.get(name)
        if columns is None:
            return None
        pairs = [each.split(":") for each in columns.split()]
        schema = pa.schema([(column, _ARROW[kind]) for column, kind in pairs])
        make = _MAKERS.get(name)
        rows = [] if make is None else list(make(self))
        places = [[row[n] if n < len(row) else None for row in rows] for n in range(len(pairs))]
        arrays = [pa.array(held, of) for held, of in zip(places, schema.types, strict=True)]
        return pa.table(arrays, schema=schema)

    # ---- pg_catalog

    def namespaces(self) -> Rows:
        """Three, of which users know one."""
        for oid, name in _SCHEMAS:
            yield oid, name, OWNER

    def classes(self) -> Rows:
        """Relations, and the indexes of their keys."""
        for each in self.all:
            definition = each.definition
            width = len(definition.schema.columns)
            yield self._class(each.oid, definition.name, each.kind, width, bool(each.index))
            if each.index:
                yield self._class(each.index, each.key_name, "i", len(each.key), False)

    @staticmethod
    def _class(oid: int, name: str, kind: str, width: int, has_index: bool) -> tuple[Any, ...]:
        method = {"r": 2, "i": 403}.get(kind, 0)
        head = (oid, name, PUBLIC, 0, 0, OWNER, method, oid, 0, 0, -1.0, 0, 0, has_index, False)
        flags = (False, False, False, False, False, True, "d", False, 0)
        return (*head, "p", kind, width, 0, *flags, None, None, None, oid)

    def attributes(self) -> Rows:
        """Columns."""
        for each in self.all:
            key = set(each.definition.schema.key)
            for number, column in enumerate(each.definition.schema.columns, 1):
                not_null = not column.nullable or column.name in key
                yield _attribute(each.oid, column, number, not_null=not_null)
            for number, place in enumerate(each.key if each.index else (), 1):
                column = each.definition.schema.columns[place - 1]
                yield _attribute(each.index, column, number, not_null=False)

    @staticmethod
    def types() -> Rows:
        """The types, and their arrays."""
        for each in PG_TYPES:
            category = _CATEGORIES.get(each.name, "U")
            kind = "p" if each.name == "unknown" else "b"
            head = (PG_CATALOG, OWNER, each.size, 0 < each.size <= 8, kind)
            rest = (False, True, ",", 0, 0, each.array, 0, -1, False, 0)
            yield (each.oid, each.name, *head, category, *rest)
            if each.array:
                start = (each.array, f"_{each.name}", PG_CATALOG, OWNER, -1, False, "b", "A")
                middle = (False, True, ",", 0, each.oid, 0, 0, -1, False, 0)
                yield (*start, *middle, None, 0, 0, _ARRAY_RECV)

    def indexes(self) -> Rows:
        """Those of keys."""
        for each in self.all:
            if each.index:
                count = len(each.key)
                flags = (True, True, False, True, False, True, True, True, False, False)
                zeros = [0] * count
                yield (each.index, each.oid, count, count, *flags, each.key, zeros, zeros, zeros)

    def constraints(self) -> Rows:
        """Primary keys."""
        for each in self.all:
            if each.index:
                head = (each.index, each.key_name, PUBLIC, "p", False, False, True, each.oid, 0)
                yield (*head, each.index, 0, 0, " ", " ", " ", True, 0, True, each.key, None)

    @staticmethod
    def databases() -> Rows:
        """One."""
        yield DATABASE, "millstream", OWNER, 6, "C", "C", False, True, -1, 1663, None, None, "c"

    def roles(self) -> Rows:
        """Who asks."""
        yield OWNER, self._user, False, True, False, False, True, False, -1, None, None, False

    def users(self) -> Rows:
        """Who asks."""
        yield self._user, OWNER, False, False, False, False, None

    def tables(self) -> Rows:
        """Sources and tables."""
        for each in self.all:
            if each.kind == "r":
                head = ("public", each.definition.name, self._user, None, bool(each.index))
                yield (*head, False, False, False)

    def views(self) -> Rows:
        """Streams."""
        for each in self.all:
            if each.kind == "v":
                yield "public", each.definition.name, self._user, self._text(each)

    def materialized_views(self) -> Rows:
        """Views."""
        for each in self.all:
            if each.kind == "m":
                yield "public", each.definition.name, self._user, self._text(each), True

    def index_list(self) -> Rows:
        """Indexes, by name."""
        for each in self.all:
            if each.index:
                yield "public", each.definition.name, each.key_name, None, index_text(each)

    def settings(self) -> Rows:
        """Those of the connection."""
        for name, value in self._settings:
            yield name, value, None, "Millstream", "", "user", "string", "default"

    # ---- what functions look up

    def definitions(self) -> Rows:
        """By OID: name, and the text that made it."""
        for each in self.all:
            name = each.definition.name
            yield each.oid, name, name, self._text(each)
            if each.index:
                yield each.index, each.key_name, each.key_name, index_text(each)

    # ---- information_schema

    def schemata(self) -> Rows:
        """Three."""
        for _, name in _SCHEMAS:
            yield "millstream", name, self._user

    def schema_tables(self) -> Rows:
        """Everything."""
        for each in self.all:
            # PostgreSQL leaves materialized views out; tools that list relations here miss them.
            kind, can = ("BASE TABLE", "YES") if each.kind == "r" else ("VIEW", "NO")
            yield "millstream", "public", each.definition.name, kind, None, None, can, "NO"

    def schema_views(self) -> Rows:
        """Views and streams."""
        for each in self.all:
            if each.kind != "r":
                head = ("millstream", "public", each.definition.name, self._text(each))
                yield (*head, "NONE", "NO", "NO")

    def _text(self, each: Relation) -> str | None:
        return query_text(each) if self._tenant is None else None

    def schema_columns(self) -> Rows:
        """Columns."""
        for each in self.all:
            for number, column in enumerate(each.definition.schema.columns, 1):
                oid = _oid(column)
                known = BY_OID.get(oid)
                name = "ARRAY" if known is None else TYPE_NAMES.get(known.name, known.name)
                udt = known.name if known else f"_{column.type.children[0].kind.lower()}"
                nullable = "YES" if column.nullable else "NO"
                digits = _PRECISIONS.get(udt, (None, None, None))
                if udt == "numeric":
                    digits = (column.type.arrow.precision, 10, column.type.arrow.scale)
                head = ("millstream", "public", each.definition.name, column.name, number, None)
                rest = ("millstream", "pg_catalog", udt, "NO", "NEVER", "YES")
                yield (*head, nullable, name, column.length, *digits, None, *rest)

    def schema_constraints(self) -> Rows:
        """Primary keys."""
        for each in self.all:
            if each.index:
                head = ("millstream", "public", each.key_name, "millstream", "public")
                yield (*head, each.definition.name, "PRIMARY KEY")

    def key_columns(self) -> Rows:
        """The columns of primary keys."""
        for each in self.all:
            for number, column in enumerate(each.definition.schema.key if each.index else (), 1):
                head = ("millstream", "public", each.key_name, "millstream", "public")
                yield (*head, each.definition.name, column, number, None)


def _oid(column: Column) -> int:
    return oid_of(column.type) if column.length is None else VARCHAR


def _attribute(oid: int, column: Column, number: int, *, not_null: bool) -> tuple[Any, ...]:
    of = _oid(column)
    known = BY_OID.get(of)
    size, dimensions = (-1, 1) if known is None else (known.size, 0)
    modifier = typmod_of(column.type) if column.length is None else column.length + 4
    head = (oid, column.name, of, size, number, dimensions, modifier, not_null)
    return (*head, False, False, "", "", False, True, 0, 0, None, None, "p", "", -1)


def query_text(each: Relation) -> str:
    """The query of a view; of anything else, what made it."""
    sql = each.definition.sql
    found = None if each.kind == "r" else _AS.search(sql)
    return sql if found is None else sql[found.end() :]


def index_text(each: Relation) -> str:
    """What would make the index of a key."""
    columns = ", ".join(each.definition.schema.key)
    return (
        f"CREATE UNIQUE INDEX {each.key_name} ON public.{each.definition.name} "
        f"USING btree ({columns})"
    )


_MAKERS: Final[dict[str, Callable[[Relations], Rows]]] = {
    "pg_namespace": Relations.namespaces,
    "pg_class": Relations.classes,
    "pg_attribute": Relations.attributes,
    "pg_type": lambda _: Relations.types(),
    "pg_index": Relations.indexes,
    "pg_constraint": Relations.constraints,
    "pg_database": lambda _: Relations.databases(),
    "pg_roles": Relations.roles,
    "pg_user": Relations.users,
    "pg_tables": Relations.tables,
    "pg_views": Relations.views,
    "pg_matviews": Relations.materialized_views,
    "pg_indexes": Relations.index_list,
    "pg_settings": Relations.settings,
    "pg_am": lambda _: iter([(2, "heap", 0, "t"), (403, "btree", 0, "i")]),
    "pg_tablespace": lambda _: iter([(1663, "pg_default", OWNER)]),
    "pg_collation": lambda _: iter([(100, "default", PG_CATALOG, OWNER, "d", -1)]),
    "pg_language": lambda _: iter([(12, "internal", OWNER)]),
    "pg_proc": lambda _: iter([(_ARRAY_RECV, "array_recv", PG_CATALOG, OWNER, 12, "f", False)]),
    "pg_timezone_names": lambda _: iter([("UTC", "UTC", False)]),
    "ms_definitions": Relations.definitions,
    "information_schema.schemata": Relations.schemata,
    "information_schema.tables": Relations.schema_tables,
    "information_schema.views": Relations.schema_views,
    "information_schema.columns": Relations.schema_columns,
    "information_schema.table_constraints": Relations.schema_constraints,
    "information_schema.key_column_usage": Relations.key_columns,
}
