"""Tenants: which relations they may see, and which rows."""

from __future__ import annotations

import pytest

from millstream.catalog import Catalog, Definition, Options
from millstream.catalog.tenants import SelectAll, find, own_rows, visible_names
from millstream.errors import ObjectNotFoundError, TenantError
from millstream.log import Log
from millstream.model import Schema

SHARED = Definition(
    "table",
    "shared",
    Schema.of(n="BIGINT", org="VARCHAR NOT NULL"),
    Options(tenant="org"),
)
PRIVATE = Definition("source", "private", Schema.of(n="BIGINT"), Options())


@pytest.fixture
def catalog(tmp_path):
    with Log(tmp_path) as log:
        catalog = Catalog(log)
        for each in (SHARED, PRIVATE):
            catalog.create(each)
        yield catalog


class TestOwnRows:
    def test_without_a_tenant_all_rows_are(self):
        assert own_rows(PRIVATE, None) is None

    def test_those_with_the_name_in_the_tenant_column(self):
        own = own_rows(SHARED, "acme")
        assert own.equality == ("org", "acme")
        assert own.places([(1, "acme"), (2, "other"), (3, "acme")]) == [0, 2]

    def test_others_are_refused(self):
        own = own_rows(SHARED, "acme")
        own.check([(1, "acme")])
        with pytest.raises(TenantError, match="cannot write a row of 'other'"):
            own.check([(1, "acme"), (2, "other")])

    @pytest.mark.parametrize("tenant", [1, b"acme", ()])
    def test_a_tenant_is_a_str(self, tenant):
        with pytest.raises(TenantError, match="expected the name of a tenant"):
            own_rows(SHARED, tenant)

    def test_a_relation_without_a_tenant_column_has_none(self):
        with pytest.raises(TenantError, match="no tenant column"):
            own_rows(PRIVATE, "acme")


class TestFind:
    def test_a_tenant_sees_relations_with_a_tenant_column(self, catalog):
        definition, own = find(catalog, "SHARED", "acme")
        assert (definition.name, own.equality[1]) == ("shared", "acme")
        assert visible_names(catalog, "acme") == ("shared",)
        assert visible_names(catalog, None) == ("private", "shared")
        with pytest.raises(TenantError):
            find(catalog, "private", "acme")

    def test_an_unknown_name_reveals_no_private_relation(self, catalog):
        with pytest.raises(ObjectNotFoundError) as raised:
            find(catalog, "privat", "acme")
        assert raised.value.hint == "available to tenants: shared"


class TestSelectAll:
    def test_one_plan_for_each_topic_and_tenant(self, catalog):
        select_all = SelectAll(catalog.get)
        plan = select_all("shared", "acme")
        assert plan.target == "shared"
        assert select_all("shared", "acme") is plan
        assert select_all("shared", "other") is not plan
        assert select_all("shared").predicate is None

    def test_nothing_is_visible_of_others(self, catalog):
        select_all = SelectAll(catalog.get)
        assert select_all("private", "acme") is None
        assert select_all("unknown") is None

    def test_a_new_definition_has_a_new_plan(self, catalog):
        select_all = SelectAll(catalog.get)
        old = select_all("shared")
        catalog.drop("shared")
        assert select_all("shared") is None
        catalog.create(SHARED)
        assert select_all("shared") is not old
