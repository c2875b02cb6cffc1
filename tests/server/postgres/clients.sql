-- Queries of the catalog, as clients send them; after each name, how many rows it gives.

-- name: jdbc tables: 2
SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME, CASE n.nspname ~
'^pg_' OR n.nspname = 'information_schema' WHEN true THEN CASE WHEN n.nspname = 'pg_catalog' OR
n.nspname = 'information_schema' THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TABLE' WHEN 'v' THEN
'SYSTEM VIEW' WHEN 'i' THEN 'SYSTEM INDEX' ELSE NULL END ELSE NULL END WHEN false THEN CASE
c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'i' THEN 'INDEX' WHEN 'v'
THEN 'VIEW' ELSE NULL END ELSE NULL END AS TABLE_TYPE, d.description AS REMARKS, '' as TYPE_CAT,
'' as TYPE_SCHEM, '' as TYPE_NAME, '' AS SELF_REFERENCING_COL_NAME, '' AS REF_GENERATION FROM
pg_catalog.pg_namespace n, pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON (c.oid =
d.objoid AND d.objsubid = 0 and d.classoid = 'pg_class'::regclass) WHERE c.relnamespace = n.oid
AND n.nspname LIKE 'public' AND (false OR ( c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname
<> 'information_schema' ) OR ( c.relkind = 'v' AND n.nspname <> 'pg_catalog' AND n.nspname <>
'information_schema' ) ) ORDER BY TABLE_TYPE,TABLE_SCHEM,TABLE_NAME;

-- name: jdbc columns: 5
SELECT * FROM (SELECT current_database() as current_database,
n.nspname,c.relname,a.attname,a.atttypid,a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS
attnotnull,a.atttypmod,a.attlen,t.typtypmod,row_number() OVER (PARTITION BY a.attrelid ORDER BY
a.attnum) AS attnum, nullif(a.attidentity, '') as attidentity,nullif(a.attgenerated, '') as
attgenerated,pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS
adsrc,dsc.description,t.typbasetype,t.typtype FROM pg_catalog.pg_namespace n JOIN
pg_catalog.pg_class c ON (c.relnamespace = n.oid) JOIN pg_catalog.pg_attribute a ON
(a.attrelid=c.oid) JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid) LEFT JOIN
pg_catalog.pg_attrdef def ON (a.attrelid=def.adrelid AND a.attnum = def.adnum) LEFT JOIN
pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT JOIN
pg_catalog.pg_class dc ON (dc.oid=dsc.classoid AND dc.relname='pg_class') LEFT JOIN
pg_catalog.pg_namespace dn ON (dc.relnamespace=dn.oid AND dn.nspname='pg_catalog') WHERE c.relkind
in ('r','p','v','f','m') and a.attnum > 0 AND NOT a.attisdropped) c WHERE true AND c.relname LIKE
'users' ORDER BY nspname,c.relname,attnum;

-- name: dbeaver schemas: 3
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN
pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND
d.classoid='pg_namespace'::regclass ORDER BY nspname;

-- name: dbeaver tables: 3
SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN
pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass
WHERE c.relnamespace=2200 AND c.relkind not in ('i','I','c');

-- name: dbeaver session: 1
SELECT current_schema(),session_user;

-- name: dbeaver types: 41
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name,
d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN
pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL
OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');

-- name: metabase: 9
SELECT c.column_name AS name, c.data_type AS "database-type", c.ordinal_position - 1 AS
"database-position", c.table_schema AS "table-schema", c.table_name AS "table-name",
pk.column_name IS NOT NULL AS "pk?" FROM information_schema.columns AS c LEFT JOIN (SELECT
tc.table_schema, tc.table_name, kc.column_name FROM information_schema.table_constraints AS tc
INNER JOIN information_schema.key_column_usage AS kc ON (tc.constraint_name = kc.constraint_name)
AND (tc.table_schema = kc.table_schema) AND (tc.table_name = kc.table_name) WHERE
tc.constraint_type = 'PRIMARY KEY') AS pk ON (c.table_schema = pk.table_schema) AND (c.table_name
= pk.table_name) AND (c.column_name = pk.column_name) WHERE c.table_schema !~
'^information_schema|catalog_history|pg_' ORDER BY "table-schema" ASC, "table-name" ASC,
"database-position" ASC;

-- name: npgsql: 40
SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid FROM (SELECT typ.oid,
typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind, elemtyp.oid
AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind, CASE WHEN
elemproc.proname='array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype FROM (SELECT
typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid, CASE WHEN
proc.proname='array_recv' THEN 'a' ELSE typ.typtype END AS typtype, CASE WHEN
proc.proname='array_recv' THEN typ.typelem WHEN typ.typtype='r' THEN rngsubtype WHEN
typ.typtype='d' THEN typ.typbasetype END AS elemtypoid FROM pg_type AS typ LEFT JOIN pg_class AS
cls ON (cls.oid = typ.typrelid) LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive LEFT JOIN
pg_range ON (pg_range.rngtypid = typ.oid)) AS typ LEFT JOIN pg_type AS elemtyp ON elemtyp.oid =
elemtypoid LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid) LEFT JOIN pg_proc AS
elemproc ON elemproc.oid = elemtyp.typreceive) AS t JOIN pg_namespace AS ns ON (ns.oid =
typnamespace) WHERE typtype IN ('b', 'r', 'm', 'e', 'd') OR (typtype = 'a') ORDER BY CASE WHEN
typtype IN ('b', 'e', 'p') THEN 0 ELSE 1 END;

-- name: pgadmin: 1
SELECT db.oid as did, db.datname, db.datallowconn, pg_encoding_to_char(db.encoding) AS
serverencoding, has_database_privilege(db.oid, 'CREATE') as cancreate, datistemplate FROM
pg_catalog.pg_database db WHERE db.datname = current_database();

-- name: pgadmin2: 1
SELECT roles.oid as id, roles.rolname as name, roles.rolsuper as is_superuser, CASE WHEN
roles.rolsuper THEN true ELSE roles.rolcreaterole END as can_create_role FROM pg_catalog.pg_roles
as roles WHERE rolname = current_user;

-- name: pk jdbc: 1
SELECT result.TABLE_NAME, result.COLUMN_NAME, result.KEY_SEQ FROM (SELECT n.nspname AS
TABLE_SCHEM, ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME,
(information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME,
information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM FROM
pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN
pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN pg_catalog.pg_index i ON ( a.attrelid
= i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE true AND ct.relname =
'users' AND i.indisprimary ) result where result.A_ATTNUM = (result.KEYS).x ORDER BY
result.table_name, result.pk_name, result.key_seq;

-- name: rails: 5
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid),
a.attnotnull, a.atttypid, a.atttypmod, c.collname, col_description(a.attrelid, a.attnum) AS
comment FROM pg_attribute a LEFT JOIN pg_attrdef d ON a.attrelid = d.adrelid AND a.attnum =
d.adnum LEFT JOIN pg_type t ON a.atttypid = t.oid LEFT JOIN pg_collation c ON a.attcollation =
c.oid AND a.attcollation <> t.typcollation WHERE a.attrelid = '"users"'::regclass AND a.attnum > 0
AND NOT a.attisdropped ORDER BY a.attnum;

-- name: django: 3
SELECT c.relname, CASE WHEN c.relispartition THEN 'p' WHEN c.relkind IN ('m', 'v') THEN 'v' ELSE
't' END, obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c LEFT JOIN
pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('f', 'm', 'p', 'r', 'v')
AND n.nspname NOT IN ('pg_catalog', 'pg_toast') AND pg_catalog.pg_table_is_visible(c.oid);

-- name: grafana tables: 2
select quote_ident(table_name) as "table" from information_schema.tables where
quote_ident(table_schema) not in ('information_schema', 'pg_catalog', '_timescaledb_cache') and
table_type = 'BASE TABLE' and quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) =
'"$user"' THEN user ELSE trim(s[i]) END FROM
generate_series(array_lower(string_to_array(current_setting('search_path'),','),1),
array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
string_to_array(current_setting('search_path'),',') s);

-- name: grafana first table: 1
SELECT quote_ident(table_name) as table_name, (SELECT quote_ident(column_name) as column_name FROM
information_schema.columns c WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name
AND udt_name = 'float8' ORDER BY ordinal_position LIMIT 1) AS value_column FROM
information_schema.tables t WHERE table_schema IN ('public') AND EXISTS (SELECT 1 FROM
information_schema.columns c WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name
AND udt_name = 'float8') LIMIT 1;
