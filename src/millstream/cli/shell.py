r"""The SQL shell: statements of several lines, history, completion, ``\`` commands."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from rich.text import Text

import millstream
from millstream.cli.completion import SqlCompleter
from millstream.cli.output import ChangePrinter, console, copy_bar, print_result
from millstream.cli.statements import is_complete, is_copy, split, subscribed
from millstream.errors import Error

if TYPE_CHECKING:
    from millstream import Database, Result
    from millstream.cli.formats import Format
    from millstream.client.client import Client

_HELP: Final = r"""Statements end with a semicolon and may have several lines.
  \d          sources, tables and views; \dt and \dv only some of them
  \d NAME     the columns of one of them
  \stale      read views as they are, without waiting until they have caught up; again: wait
  \? or \h    this help
  \q          leave; so does Ctrl-D
  SUBSCRIBE TO NAME; LIVE SELECT ...;    changes as they happen, until Ctrl-C
  CREATE SOURCE, TABLE, MATERIALIZED VIEW; INSERT, UPDATE, DELETE; SELECT; SHOW; EXPLAIN
  COPY t FROM 'x.parquet'; COPY (SELECT ...) TO 'y.csv';    files, with their progress"""
_KINDS: Final = ("source", "table", "view", "stream")
_LISTED: Final = {"\\d": _KINDS, "\\dt": ("source", "table"), "\\dv": ("view", "stream")}


class Runner:
    """Runs statements on a database and prints what they give.

    Args:
        database: what they run on.
        form: how their results are printed.
    """

    def __init__(self, database: Database, form: Format) -> None:
        self.database = database
        self.out = console()
        self._form = form
        self._stale_ok = False

    def run(self, statement: str) -> None:
        """Run one statement; one that subscribes prints changes until Ctrl-C.

        Raises:
            SqlError: the statement is refused.
        """
        if statement.lstrip().startswith("\\"):
            self.command(statement.strip())
            return
        query = subscribed(statement)
        if query is not None:
            self._follow(query)
            return
        if is_copy(statement):
            result = self._copy(statement)
        else:
            result = self.database.execute(statement, stale_ok=self._stale_ok)
        print_result(self.out, result, self._form)
        if result.catching_up and self.out.is_terminal:
            self.out.print(Text(f"catching up: {', '.join(result.catching_up)}", "yellow"))

    def _copy(self, statement: str) -> Result:
        """Run a COPY, with a bar of its progress on a terminal."""
        database = cast("Database | Client", self.database)
        if not isinstance(database, millstream.Database):  # a server's, which does not say
            return database.execute(statement)
        with copy_bar() as report:
            return database.execute(statement, progress=report)

    def command(self, text: str) -> None:
        r"""Run a ``\`` command but ``\q``."""
        word, _, name = text.rstrip(";").strip().partition(" ")
        if word in _LISTED:
            self._describe(name.strip(), _LISTED[word])
        elif word == "\\stale":
            self._stale_ok = not self._stale_ok
            how = "as they are" if self._stale_ok else "once they have caught up"
            self.out.print(Text(f"views are read {how}", "dim"))
        elif word in {"\\?", "\\h"}:
            self.out.print(Text(_HELP))
        else:
            raise Error(f"unknown command {word}", hint=r"\? lists the commands")

    def _describe(self, name: str, kinds: tuple[str, ...]) -> None:
        if name:
            print_result(self.out, self.database.query(f"DESCRIBE {name}"), self._form)
            return
        rows = []
        for kind in kinds:
            shown = self.database.query(f"SHOW {kind.upper()}S")
            rows += [(each["name"], kind, each["columns"]) for each in shown.to_pylist()]
        schema = millstream.Schema.of(name="VARCHAR", kind="VARCHAR", columns="VARCHAR")
        print_result(self.out, millstream.Result.of_rows(schema, rows), self._form)

    def _follow(self, query: str) -> None:
        printer = ChangePrinter(self.out, self._form)
        with self.database.subscribe(query) as subscription:
            if self.out.is_terminal:
                view = f"{subscription.target} is catching up; "
                what = view if subscription.awaits_snapshot else ""
                self.out.print(Text(f"{what}waiting for changes; Ctrl-C ends it", "dim"))
            try:
                for batch in subscription:
                    printer.print(batch)
                    self.out.file.flush()
            except KeyboardInterrupt:
                self.out.print()


class Shell:
    """Reads statements from the terminal until the user leaves.

    Args:
        runner: what runs them.
        place: the directory or the address, for the prompt.
    """

    def __init__(self, runner: Runner, place: str | None) -> None:
        self._runner = runner
        self._completer = SqlCompleter(runner.database)
        self._session: PromptSession[str] = PromptSession(
            message=f"{Path(place).name if place else 'millstream'}> ",
            prompt_continuation=lambda width, *_: "... ".rjust(width),
            history=FileHistory(str(_history_file())),
            completer=self._completer,
            complete_while_typing=False,
            multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
            enable_history_search=True,
        )

    def run(self) -> None:
        r"""Read and run statements until ``\q`` or Ctrl-D."""
        out = self._runner.out
        out.print(Text(f"Millstream {millstream.__version__}. \\? for help, \\q to leave.", "dim"))
        while True:
            try:
                text = self._session.prompt()
            except KeyboardInterrupt:  # what was typed is dropped, as in any shell
                continue
            except EOFError:
                return
            if text.strip().rstrip(";") in {"\\q", "quit", "exit"}:
                return
            self._run_all(text)

    def _run_all(self, text: str) -> None:
        is_command = text.lstrip().startswith("\\")
        for statement in [text] if is_command else split(text)[0]:
            began = time.perf_counter()
            try:
                self._runner.run(statement)
            except Error as error:
                self._runner.out.print(Text(f"error: {error}", "red"))
                return
            except KeyboardInterrupt:
                self._runner.out.print(Text("interrupted", "yellow"))
                return
            if not is_command and subscribed(statement) is None:
                milliseconds = (time.perf_counter() - began) * 1e3
                self._runner.out.print(Text(f"{milliseconds:,.1f} ms", "dim"))


def _history_file() -> Path:
    given = os.environ.get("MILLSTREAM_HISTORY")
    path = Path(given) if given else Path(typer.get_app_dir("millstream")) / "sql_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
