/** The console: what is on the page, and what it does. */

import { Client } from "/v1/millstream.js";
import { Catalog, selectAll, trouble } from "./catalog.js";
import { Charts } from "./charts.js";
import { announce, byId, count, rate, setData, setText } from "./dom.js";
import { Editor, followed, split } from "./editor.js";
import { LiveCard } from "./live.js";
import { errorCard, resultCard } from "./results.js";
import { Status } from "./status.js";
import { Topology } from "./topology.js";

const KEY = "millstream.key";
const MOST_LIVE = 8;
const CONNECTION = {
  connecting: "connecting …",
  open: "connected",
  away: "reconnecting …",
  refused: "not let in",
  closed: "closed",
};
const EXAMPLE = `CREATE SOURCE trades (symbol VARCHAR, price DOUBLE, qty BIGINT);
CREATE MATERIALIZED VIEW large AS
  SELECT symbol, price * qty AS value FROM trades WHERE qty >= 50;
INSERT INTO trades VALUES ('AAPL', 187.5, 100), ('ACME', 9.5, 10), ('MSFT', 402.0, 50);
LIVE SELECT * FROM large`;

class Console {
  #client = null;
  #status = null;
  #live = new Set();
  #answer = null;
  #charts = new Charts(byId("charts"));
  #editor = new Editor({ onRun: () => this.run(), onFollow: () => this.follow() });
  #catalog = new Catalog(byId("catalog"), {
    query: (name) => this.#put(selectAll(name), () => this.run()),
    follow: (name) => this.#put(selectAll(name), () => this.follow()),
  });
  #topology = new Topology(byId("topology"), (name) => this.#catalog.show(name));

  /** Connect with a key, or without. */
  start(key) {
    this.#status?.stop();
    this.#client?.close();
    for (const card of [...this.#live]) card.close();
    const client = (this.#client = new Client(location.origin, { key }));
    const status = (this.#status = new Status(client));
    client.addEventListener("state", () => client === this.#client && this.#connection());
    status.addEventListener("sample", () => this.#draw(status));
    byId("key").hidden = !key;
    this.#connection();
  }

  #connection() {
    const { state, error } = this.#client;
    const pill = byId("connection");
    setData(pill, "state", state);
    setText(pill, CONNECTION[state]);
    document.body.dataset.connection = state;
    if (state === "open") {
      byId("login").close();
      this.#status.now();
    }
    if (state === "refused") askForKey(error);
  }

  #draw(status) {
    const { catalog, history } = status;
    const relations = [...status.relations()];
    this.#catalog.draw(status);
    this.#charts.draw(history);
    this.#topology.draw(status);
    byId("charts").hidden = !status.hasMeasures;
    byId("nothing").hidden = relations.length > 0;
    setText(byId("facts"), `LSN ${count(catalog.lsn)}`);
    const failed = relations.filter((each) => ["failed", "broken", "damaged"].includes(each.state));
    const banner = byId("trouble");
    banner.hidden = !failed.length;
    setText(banner, failed.map((each) => `${each.name}: ${trouble(each)}`).join(" "));
    const flow = history.rowsIn.at(-1);
    document.title = flow > 0 ? `${rate(flow)} · Millstream` : "Millstream";
  }

  // ---- statements

  #put(sql, then) {
    this.#editor.text = sql;
    showTab("query");
    then();
  }

  /** Run what is in the editor; if its last statement is LIVE SELECT, follow that. */
  async run() {
    const sql = this.#editor.text;
    if (!sql.trim()) return this.#editor.focus();
    this.#editor.remember(sql);
    const { before, last } = split(sql);
    const query = followed(last);
    if (query === null) await this.#execute(sql);
    else if (!before.trim() || (await this.#execute(before))) this.#follow(query);
  }

  /** Follow the last statement of what is in the editor, having run those before it. */
  async follow() {
    const sql = this.#editor.text;
    if (!sql.trim()) return this.#editor.focus();
    this.#editor.remember(sql);
    const { before, last } = split(sql);
    if (!before.trim() || (await this.#execute(before))) this.#follow(followed(last) ?? last);
  }

  async #execute(sql) {
    const began = performance.now();
    const button = byId("run");
    button.setAttribute("aria-busy", "true");
    try {
      const result = await this.#client.execute(sql);
      this.#editor.mark(null);
      this.#show(resultCard(result, sql, performance.now() - began));
      this.#status.now();
      return true;
    } catch (error) {
      this.#failed(error, sql);
      return false;
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  #follow(sql) {
    if (this.#live.size >= MOST_LIVE) {
      const message = `${MOST_LIVE} live results are on the page already`;
      this.#failed({ code: "LIMIT", message, hint: "Stop one of them." }, sql);
      return;
    }
    this.#editor.mark(null);
    this.#answer?.remove();
    const card = new LiveCard(this.#client, sql, {
      onError: (error) => {
        card.close();
        this.#failed(error, sql);
      },
      onClose: () => {
        this.#live.delete(card);
        this.#arrange();
      },
    });
    this.#live.add(card);
    byId("results").prepend(card.element);
    this.#arrange();
    announce("Following live");
  }

  #failed(error, sql) {
    this.#editor.mark(error.line, error.column);
    this.#show(errorCard(error, sql));
  }

  #show(card) {
    this.#answer?.remove();
    this.#answer = card;
    byId("results").prepend(card);
    this.#arrange();
  }

  #arrange() {
    byId("no-results").hidden = byId("results").childElementCount > 0;
  }
}

function askForKey(error) {
  const dialog = byId("login");
  const given = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  const problem = byId("login-error");
  const isKey = error.code === "UNAUTHENTICATED" || error.code === "BAD_REQUEST";
  problem.hidden = !given && isKey;
  setText(problem, isKey ? "This key was not accepted." : `${error.message}. ${error.hint}`);
  if (!dialog.open) dialog.showModal();
  byId("login-key").value = "";
  byId("login-key").focus();
}

// ---- tabs: the arrow keys move between them

const TABS = ["query", "topology"];

function showTab(name, isFocused = false) {
  for (const each of TABS) {
    const tab = byId(`tab-${each}`);
    const isShown = each === name;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    byId(`panel-${each}`).hidden = !isShown;
    if (isShown && isFocused) tab.focus();
  }
}

function wireTabs() {
  TABS.forEach((name, i) => {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => showTab(name));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step) showTab(TABS[(i + step + TABS.length) % TABS.length], true);
    });
  });
}

function wireTheme() {
  const root = document.documentElement;
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  byId("theme").addEventListener("click", () => {
    const now = root.dataset.theme ?? (systemIsDark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    localStorage.setItem("millstream.theme", root.dataset.theme);
    announce(`${root.dataset.theme} theme`);
  });
}

const page = new Console();
wireTabs();
wireTheme();
byId("editor").addEventListener("submit", (event) => {
  event.preventDefault();
  page.run();
});
byId("follow").addEventListener("click", () => page.follow());
byId("example").addEventListener("click", () => {
  byId("sql").value = EXAMPLE;
  byId("sql").dispatchEvent(new Event("input"));
  byId("sql").focus();
});
byId("key").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  page.start(null);
});
byId("login").addEventListener("cancel", (event) => event.preventDefault());
byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("login-key").value.trim();
  if (!key) return;
  sessionStorage.setItem(KEY, key);
  page.start(key);
});
page.start(sessionStorage.getItem(KEY));
