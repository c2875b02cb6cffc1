"""No error, log line or SHOW repeats a secret: of statements that are wrong in every way."""

import traceback

import pytest

import millstream as ms
from millstream.connectors.options import Scrubber
from millstream.masking import mask_url, without_secrets
from millstream.testing import database

from . import samples  # noqa: F401 - registers

SECRET = "hunter2"
LINES = "CREATE SOURCE k (id BIGINT) WITH (connector = 'test-lines', path = 'x', "
WRONG = (
    f"{LINES}pasword = '{SECRET}')",
    f"{LINES}pasword = '{SECRET}'\n, password = 'b')",
    f"{LINES}PWD = '{SECRET}')",
    f"{LINES}'pasword' = '{SECRET}')",
    f"{LINES}password = {SECRET})",
    f'{LINES}password = "{SECRET}")',
    f"{LINES}password '{SECRET}')",
    f"{LINES}password => '{SECRET}')",
    f"{LINES}password = '{SECRET}'",
    f"{LINES}password = '{SECRET}",
    f"{LINES}password = 'it's-{SECRET}')",
    f"{LINES}password = 'a' '{SECRET}')",
    f"{LINES}'{SECRET}')",
    f"{LINES}password = '{SECRET}', password = '{SECRET}')",
    f"{LINES}-- password = '{SECRET}'\nlines = 'many')",
    f"{LINES}/* {SECRET} */ lines = 'many')",
    f"{LINES}url = 'pg://me:{SECRET}@there')",
    f"{LINES}mode = 'pg://me:{SECRET}@there')",
    f"{LINES}mode = 'pg://me:a/{SECRET}@there')",
    f"{LINES}mode = 'host=there password=''a {SECRET}''')",
    f"CREATE SOURCE k (id BIGINT) WITH connector = 'test-lines', pasword = '{SECRET}'",
    f"CREATE SOURCE k (id BIGIN) WITH (connector = 'test-lines', pasword = '{SECRET}')",
    f"CREATE SOURCE k (id BIGINT) WITH (conector = 'test-lines', pasword = '{SECRET}')",
    f"CREATE SINK k FROM nothing WITH (connector = 'test-append', pasword = '{SECRET}')",
    f"CREATE SINK k FROM t WITH (connector = 'webhook', headrs = '{{\"a\": \"{SECRET}\"}}')",
    f"CREATE SINK k FROM t WITH (connector = 'kafka', kafka.sasl.passwort = '{SECRET}')",
    f"CREATE SINK k FROM t WITH (connector = 'postgres', url = 'postgres:/me:{SECRET}@a:b:c/d')",
    f"COPY t FROM 'ftp://me:{SECRET}@there/x.csv'",
    f"COPY t FROM 's3://there/x.csv' WITH (secretkey = '{SECRET}')",
    f"COPY t FROM 's3://there/x.csv' (secret_key = '{SECRET}', region = true)",
    f"COPY t TO 's3://there/x.csv' OPTIONS (secrt = {SECRET})",
)


@pytest.fixture(scope="module")
def db():
    with database("CREATE SOURCE t (id BIGINT)") as db:
        yield db


@pytest.mark.parametrize("statement", WRONG)
def test_a_wrong_statement_does_not_repeat_a_secret(db, statement, caplog):
    with pytest.raises(ms.Error) as caught:
        db.execute(statement)
    error: BaseException | None = caught.value
    texts = [caplog.text]
    while error is not None:
        texts += [str(error), repr(error), repr(vars(error)), repr(error.args)]
        error = error.__cause__ or error.__context__
    texts += traceback.format_exception_only(caught.value)
    assert SECRET not in "\n".join(texts)


def test_a_masked_text_has_its_places():
    for statement in WRONG:
        masked = without_secrets(statement)
        assert [len(line) for line in masked.split("\n")] == [
            len(line) for line in statement.split("\n")
        ]
        assert without_secrets(masked) == masked


def test_what_is_no_secret_is_shown():
    for text in (
        "SELECT '(a' AS b FROM t WHERE c = 'WITH' AND password = 'x'",
        "WITH a AS (SELECT 'x' AS y) SELECT * FROM a",
        "CREATE SOURCE k (id BIGINT) WITH (connector = 'kafka', format = 'json')",
        "CREATE SINK k FROM t WITH (connector = 'x', password = '${env:PASSWORD}')",
        "COPY t FROM 'abfs://container@account.dfs.core.windows.net/x.csv'",
    ):
        assert without_secrets(text) == text
        assert mask_url("http://host:80/a@b") == "http://host:***@b"
    assert mask_url("abfs://container@account/x") == "abfs://container@account/x"


def test_drivers_may_repeat_a_password_in_any_spelling():
    scrub = Scrubber({"url": "pg://me:a%40b/c@there", "dsn": "password='x y z'"}, ())
    assert scrub("no a%40b/c, no a@b/c, no x y z") == "no ***, no ***, no ***"
