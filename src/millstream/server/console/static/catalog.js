/** The list of what exists: row counts, state, lag, and what is wrong, in plain words. */

import { count, el, plural, quoted, rate, setData, setText } from "./dom.js";

const TITLES = { source: "Sources", table: "Tables", view: "Views", stream: "Streams" };
const CALM = new Set(["ok", "live"]);
/** Fewer rows than this are on their way, not behind. */
export const BEHIND = 1000;

/** Why a relation does not work as it should; empty if it does. */
export function trouble({ kind, state, error, lag_rows: lag }) {
  if (state === "failed") return `This ${kind} has stopped. ${sentence(error)}`;
  if (state === "broken") return `This ${kind} cannot be opened. ${sentence(error)}`;
  if (state === "damaged") return `A part of its log is damaged. ${sentence(error)}`;
  if (state === "waiting") return "It waits: the disk is full.";
  if (state === "restarting") return `It restarts. ${sentence(error)}`;
  if (error) return `It is tried again. ${sentence(error)}`;
  return lag > 100_000 ? `It is ${plural(lag, "row")} behind.` : "";
}

const sentence = (text) => {
  const line = (text ?? "").trim().replace(/^the (view|stream) \S+ failed: /, "");
  return line && line[0].toUpperCase() + line.slice(1) + (/[.!?]$/.test(line) ? "" : ".");
};

/** How it runs, in a word or two. */
function stateOf({ kind, state, tenant }) {
  if (kind === "source" || kind === "table") return state && !CALM.has(state) ? state : "";
  return state ?? (tenant ? "" : "live");
}

function size({ kind, pushed, rows, emit }) {
  if (kind === "source") return pushed === undefined ? "" : `${count(pushed)} in`;
  if (emit === "late rows" || kind === "stream") return "";
  return rows === undefined ? "" : plural(rows, "row");
}

class Item {
  #columns = "";

  constructor(relation, actions) {
    this.name = el("span", { class: "name" }, relation.name);
    this.size = el("span", { class: "size" });
    this.state = el("span", { class: "pill" });
    this.rate = el("span", { class: "rate" });
    this.columns = el("dl");
    this.query = el("pre", { class: "definition", hidden: true });
    this.facts = el("p", { class: "facts" });
    this.trouble = el("p", { class: "trouble", hidden: true });
    const button = (label, call) =>
      el("button", { type: "button", "aria-label": `${label} ${relation.name}`, onclick: () => call(relation.name) }, label);
    this.details = el(
      "details",
      null,
      el("summary", null, this.name, this.size, this.state, this.rate),
      this.columns,
      this.query,
      this.facts,
      el("div", { class: "bar" }, button("Query", actions.query), button("Follow", actions.follow)),
    );
    this.element = el("li", { "data-relation": relation.name }, this.details, this.trouble);
  }

  update(relation, perSecond) {
    const why = trouble(relation);
    const word = stateOf(relation);
    setText(this.size, size(relation));
    setText(this.state, word);
    setData(this.state, "state", word);
    this.state.hidden = !word;
    const isBehind = relation.lag_rows > BEHIND;
    const pace = perSecond > 0 ? rate(perSecond) : "";
    setText(this.rate, isBehind ? `${count(relation.lag_rows)} behind` : pace);
    this.rate.classList.toggle("behind", isBehind);
    setText(this.trouble, why);
    this.trouble.hidden = !why;
    this.#describe(relation);
  }

  #describe({ schema, query, kind, late_rows: late, restarts, dropped, watermark }) {
    const text = JSON.stringify(schema);
    if (text !== this.#columns) {
      this.#columns = text;
      const pairs = schema.map(({ name, type, key }) => [
        el("dt", { class: key ? "key" : null }, name),
        el("dd", null, key ? `${type}, key` : type),
      ]);
      this.columns.replaceChildren(...pairs.flat());
    }
    this.query.hidden = !query;
    if (query) setText(this.query, query);
    const facts = [];
    if (late) facts.push(`${plural(late, "late row")}`);
    if (restarts) facts.push(`${plural(restarts, "restart")}`);
    if (dropped) facts.push(`${plural(dropped, "row")} dropped`);
    if (watermark && kind === "source") facts.push(`watermark ${watermark}`);
    setText(this.facts, facts.join(" · "));
  }
}

export class Catalog {
  #element;
  #actions;
  #items = new Map();
  #lists = {};

  constructor(element, actions) {
    this.#element = element;
    this.#actions = actions;
    for (const [kind, title] of Object.entries(TITLES)) {
      const number = el("span", { class: "number" });
      const list = el("ul");
      const section = el("section", { hidden: true, "aria-label": title }, el("h2", null, title, number), list);
      this.#lists[kind] = { section, list, number };
      element.append(section);
    }
  }

  draw(status) {
    const there = new Set();
    for (const relation of status.relations()) {
      const id = `${relation.kind} ${relation.name}`;
      there.add(id);
      if (!this.#items.has(id)) this.#items.set(id, new Item(relation, this.#actions));
      this.#items.get(id).update(relation, status.rate(relation.name));
    }
    for (const [id, item] of this.#items) {
      if (there.has(id)) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    for (const [kind, { section, list, number }] of Object.entries(this.#lists)) {
      const items = status.catalog[`${kind}s`].map(({ name }) => this.#items.get(`${kind} ${name}`).element);
      items.forEach((item, i) => list.children[i] !== item && list.insertBefore(item, list.children[i] ?? null));
      section.hidden = !items.length;
      setText(number, String(items.length));
    }
  }

  clear() {
    this.#items.clear();
    this.#element.querySelectorAll("ul").forEach((list) => list.replaceChildren());
  }

  /** Open one, and bring it into sight. */
  show(name) {
    for (const item of this.#items.values()) {
      if (item.name.textContent !== name) continue;
      item.details.open = true;
      item.details.querySelector("summary").focus();
      item.element.scrollIntoView({ block: "nearest" });
    }
  }
}

export const selectAll = (name) => `SELECT * FROM ${quoted(name)}`;
