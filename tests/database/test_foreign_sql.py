"""What other databases write, answered in this process: without Spark."""

import pytest

import millstream as ms
from millstream.errors import SqlTypeError

ROWS = [(1, "ann", 1.5, True), (2, "bob", None, False), (3, "Ada", 2.0, None)]


@pytest.fixture
def people(db):
    db.execute(
        "CREATE LOOKUP TABLE public.people (id INT PRIMARY KEY, name VARCHAR, d DOUBLE, b BOOLEAN)"
    )
    db.insert("people", ROWS)
    return db


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id = '1'", [1]),
        ("'2' < id", [3]),
        ("id IN ('1', ' 3 ')", [1, 3]),
        ("id BETWEEN '2' AND '3'", [2, 3]),
        ("d = '1.5' OR b = 'no'", [1, 2]),
        ("CASE id WHEN '2' THEN TRUE ELSE FALSE END", [2]),
        ("id = ANY(ARRAY[1, 3])", [1, 3]),
        ("id = ANY('{1,2}')", [1, 2]),
        ("id <> ALL(ARRAY[1, 3])", [2]),
        ("""name = ANY('{bob,"Ada"}')""", [2, 3]),
        ("name ~ '^[ab]'", [1, 2]),
        ("name ~* '^A'", [1, 3]),
        ("name !~ 'a'", [2]),
    ],
)
def test_conditions(people, condition, ids):
    query = f"SELECT id FROM public.people WHERE {condition} ORDER BY id"
    assert people.query(query).fetchall() == [(each,) for each in ids]
    found = people.query(f"SELECT id FROM people WHERE {condition}").fetchall()
    assert sorted(found) == [(each,) for each in ids]


@pytest.mark.parametrize("condition", ["id = 'one'", "id = '1.5'", "d > 'much'", "b = 'maybe'"])
def test_a_text_that_is_no_number(people, condition):
    with pytest.raises(SqlTypeError, match="is not a valid"):
        people.query(f"SELECT id FROM people WHERE {condition}")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        ("SELECT y FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) WHERE x > 1", [("b",)]),
        (
            (
                "SELECT name, v.y FROM people JOIN (VALUES (1, 'a'), (3, 'b')) AS v(x, y) ON id = x"
                " ORDER BY id"
            ),
            [("ann", "a"), ("Ada", "b")],
        ),
        ("SELECT SUM(col1) AS s FROM VALUES (1), (2L)", [(3,)]),
    ],
)
def test_values(people, query, rows):
    assert people.query(query).fetchall() == rows
    assert "no Spark" in str(people.query(f"EXPLAIN {query}").fetchall())


def test_statements_with_the_schema(people):
    people.execute("INSERT INTO public.people VALUES (4, 'Cyd', 1, TRUE)")
    people.execute("UPDATE public.people SET d = 9 WHERE id = '4'")
    assert people.query("SELECT d FROM people WHERE id = 4").fetchall() == [(9.0,)]
    people.execute("DELETE FROM public.people; DROP TABLE public.people")


def test_times_with_a_zone_of_hours(db):
    db.execute("CREATE SOURCE s (at TIMESTAMP)")
    db.execute("INSERT INTO s VALUES ('2026-01-01 12:00:00+00'), ('2026-01-01 13:00:00+01')")
    [(one,), (two,)] = db.query("SELECT at FROM s").fetchall()
    assert one == two


def test_a_relation_is_subscribed_to_by_its_name(people):
    with people.subscribe("people") as all_of_it, people.subscribe(' "people" ') as again:
        assert sorted(change.row for change in all_of_it.recv(timeout=30)) == ROWS
        assert len(again.recv(timeout=30)) == 3
    with pytest.raises(ms.errors.ObjectNotFoundError):
        people.subscribe("nobody")
