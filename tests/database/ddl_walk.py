"""A process that changes what exists at random, from sessions and from connections, until killed.

``python ddl_walk.py DIRECTORY SEED`` prints "open", then a line of JSON for each error: its type,
its text, and what was run. Errors that such a walk may meet are printed, too: the test sorts them.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import traceback

import millstream as ms
from millstream.server.run import Server
from millstream.server.settings import Settings

SESSIONS, CONNECTIONS = 8, 4
SETUP = (
    "CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, x BIGINT)",
    "CREATE SOURCE IF NOT EXISTS s (id BIGINT, x BIGINT)",
)
BASES = ("t", "s", "a", "b")
VIEWS = ("v0", "v1", "v2", "v3", "v4")


class Walker:
    """Runs one random statement after another.

    Args:
        db: the database, or a client of it.
        seed: which dice.
    """

    def __init__(self, db, seed):
        self.db = db
        self.dice = random.Random(seed)
        self.sql = ""

    def run(self, sql):
        self.sql = sql
        return self.db.execute(sql)

    def query(self):
        """A query of anything that there may be; it has the columns id and x, as all have."""
        name = self.dice.choice((*BASES, *VIEWS))
        columns = "*" if self.dice.random() < 0.2 else f"id, x + {self.dice.randrange(9)} AS x"
        where = f" WHERE x % 2 = {self.dice.randrange(2)}" if self.dice.random() < 0.3 else ""
        return f"SELECT {columns} FROM {name}{where}"

    def create(self):
        kind = self.dice.choice(("MATERIALIZED VIEW", "MATERIALIZED VIEW", "STREAM"))
        how = self.dice.choice(("", "", "IF NOT EXISTS "))
        self.run(f"CREATE {kind} {how}{self.dice.choice(VIEWS)} AS {self.query()}")

    def replace(self):
        kind = self.dice.choice(("MATERIALIZED VIEW", "MATERIALIZED VIEW", "STREAM"))
        self.run(f"CREATE OR REPLACE {kind} {self.dice.choice(VIEWS)} AS {self.query()}")

    def base(self):
        name = self.dice.choice(("a", "b"))
        key = "TABLE {} (id BIGINT PRIMARY KEY, x BIGINT)"
        made = self.dice.choice((key, "SOURCE {} (id BIGINT, x BIGINT)")).format(name)
        self.run(f"CREATE {made}")

    def drop(self):
        name = self.dice.choice(("a", "b", *VIEWS))
        kinds = ("TABLE", "SOURCE") if name in BASES else ("VIEW", "VIEW", "STREAM")
        how = self.dice.choice(("", "IF EXISTS "))
        cascade = " CASCADE" if self.dice.random() < 0.3 else ""
        self.run(f"DROP {self.dice.choice(kinds)} {how}{name}{cascade}")

    def alter(self):
        kind, name = self.dice.choice((("TABLE", "a"), ("SOURCE", "b"), ("TABLE", "b")))
        self.run(f"ALTER {kind} {name} ADD COLUMN c{self.dice.randrange(10**6)} BIGINT")

    def write(self):
        name = self.dice.choice(BASES)
        rows = [(self.dice.randrange(200), self.dice.randrange(100)) for _ in range(3)]
        values = ", ".join(f"({a}, {b})" for a, b in rows)
        self.run(f"INSERT OR REPLACE INTO {name} (id, x) VALUES {values}")

    def append(self):
        name = self.dice.choice(("s", "a", "b"))
        self.run(f"INSERT INTO {name} (id, x) VALUES ({self.dice.randrange(10**9)}, 1)")

    def delete(self):
        name = self.dice.choice(("t", "a", "b"))
        self.run(f"DELETE FROM {name} WHERE id = {self.dice.randrange(200)}")

    def ask(self):
        name = self.dice.choice((*BASES, *VIEWS))
        self.sql = f"SELECT COUNT(*) FROM {name}"
        if self.dice.random() < 0.5:
            self.sql = f"SELECT id, x FROM {name} WHERE x > 3"
        self.db.query(self.sql).fetchall()

    def show(self):
        self.sql = self.dice.choice(("SHOW VIEWS", "SHOW TABLES", "SHOW STREAMS", "SHOW SOURCES"))
        self.db.query(self.sql).fetchall()

    def wait(self):
        self.sql = f"wait_for {self.dice.choice(VIEWS)}"
        self.db.wait_for(self.sql.split()[1], timeout=5)

    def subscribe(self):
        self.sql = self.query()
        with self.db.subscribe(self.sql, start=self.dice.choice((None, "earliest"))) as opened:
            for _ in range(3):
                opened.recv(timeout=0.2)

    def follow(self):
        """A durable subscription: of one name there is one reader, and one query."""
        name = self.dice.choice(("d0", "d1"))
        self.sql = f"SELECT id, x FROM {self.dice.choice((*BASES, *VIEWS))}"
        with self.db.subscribe(self.sql, name=name) as opened:
            for _ in range(3):
                opened.ack(opened.recv(timeout=0.2))

    def forget(self):
        self.run(f"DROP SUBSCRIPTION IF EXISTS {self.dice.choice(('d0', 'd1'))}")

    def walk(self, report):
        steps = (
            *(self.create, self.create, self.replace, self.replace, self.base, self.drop),
            *(self.drop, self.alter, self.write, self.append, self.delete, self.ask),
            *(self.show, self.wait, self.subscribe, self.follow, self.forget),
        )
        while True:
            try:
                self.dice.choice(steps)()
            except ms.errors.ReceiveTimeoutError:
                pass
            except Exception as error:
                report(error, self.sql)


def main(path, seed):
    printing = threading.Lock()

    def say(line):
        with printing:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def report(error, sql):
        text = str(error)
        if not isinstance(error, ms.Error):
            text = "".join(traceback.format_exception(error))
        say(json.dumps([type(error).__name__, text, sql]))

    with ms.open(path) as db:
        for each in SETUP:
            db.execute(each)
        ready = threading.Event()
        server = Server(db, Settings(http=("127.0.0.1", 0)))
        threading.Thread(target=server.run, args=(lambda _: ready.set(),), daemon=True).start()
        ready.wait()
        sessions = [db.session(tenant=None) for _ in range(SESSIONS)]
        places = [*sessions, *(ms.connect(server.http) for _ in range(CONNECTIONS))]
        say("open")
        for n, place in enumerate(places):
            walker = Walker(place, f"{seed} {n}")
            threading.Thread(target=walker.walk, args=(report,), daemon=True).start()
        sys.stdin.read()  # until it is killed, or its parent ends


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
