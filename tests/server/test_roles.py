from __future__ import annotations

import pytest

from millstream.engine.permissions import ROLES, TABLE, action_of
from millstream.errors import RoleError, SqlSyntaxError, TenantError
from millstream.server import roles
from millstream.server.roles import Identity, check_sql, facts_of
from millstream.sql import parse

READ = (
    "SELECT * FROM t",
    "LIVE SELECT * FROM t",
    "SELECT a, COUNT(*) FROM t GROUP BY a",
    "SHOW SOURCES",
    "SHOW CREATE t",
    "SHOW CHANGES FOR t",
    "DESCRIBE t",
    "EXPLAIN SELECT * FROM t",
    "LISTEN c",
    "UNLISTEN *",
)
WRITE = (
    "INSERT INTO t VALUES (1)",
    "UPDATE t SET a = 1",
    "DELETE FROM t",
    "NOTIFY c, 'hello'",
    "SELECT * FROM t; DELETE FROM t",
)
ADMIN = (
    "CREATE SOURCE s (a BIGINT)",
    "CREATE TABLE s (a BIGINT PRIMARY KEY)",
    "CREATE MATERIALIZED VIEW v AS SELECT a FROM s",
    "DROP TABLE t",
    "DROP SUBSCRIPTION d",
    "ALTER TABLE t ADD COLUMN b BIGINT",
    "ALTER TABLE t SKIP DAMAGE",
    "CREATE SOURCE s (a BIGINT) WITH (connector = 'generator')",
    "CREATE SINK o FROM s WITH (connector = 'webhook')",
    "ALTER SINK o PAUSE",
    "DROP SINK o",
    "COPY t FROM '/etc/passwd' WITH (format = 'csv')",
    "COPY (SELECT * FROM t) TO 'x.csv'",
    "SELECT 1 AS a FROM t; DROP TABLE t",
)


def needed_role(statements):
    return max((TABLE[action_of(each)].role for each in statements), key=ROLES.index)


@pytest.mark.parametrize("sql", READ)
def test_all_may_read(sql):
    assert needed_role(parse(sql)) == "read"
    check_sql(Identity("k", None, "read"), sql)


@pytest.mark.parametrize("sql", WRITE)
def test_writers_may_write(sql):
    assert needed_role(parse(sql)) == "write"
    check_sql(Identity("k", None, "write"), sql)
    with pytest.raises(RoleError, match="'read' cannot run"):
        check_sql(Identity("k", None, "read"), sql)


@pytest.mark.parametrize("sql", ADMIN)
def test_admins_may_do_the_rest(sql):
    assert needed_role(parse(sql)) == "admin"
    check_sql(Identity("k"), sql)
    for role in ("read", "write"):
        with pytest.raises(RoleError, match="use a key with the role 'admin'"):
            check_sql(Identity("k", None, role), sql)


def test_what_is_not_in_the_table_needs_the_highest_role_and_no_tenant():
    Identity("k").check("FLY")
    with pytest.raises(RoleError):
        Identity("k", None, "write").check("FLY")
    with pytest.raises(TenantError):
        Identity("k", "acme", "admin").check("FLY")


def test_text_that_cannot_be_parsed():
    with pytest.raises(SqlSyntaxError):
        check_sql(Identity("k", None, "read"), "SELEC")


def test_the_error_names_the_statement_that_was_refused():
    with pytest.raises(RoleError, match="cannot run DELETE"):
        check_sql(Identity("k", None, "read"), "SELECT * FROM t; DELETE FROM t")


def test_long_texts_are_not_remembered():
    sql = f"SELECT * FROM t WHERE a = '{'x' * 10_000}'"
    assert facts_of(sql).actions[0][0] == "SELECT"
    assert sql not in roles._known
