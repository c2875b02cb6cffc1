/** A live result: a card whose rows change as the result does. */

import { count, el, fillCell, headRow, isNumeric, plural, rate, setData, setText } from "./dom.js";
import { LiveRows } from "./live_rows.js";

const LEAVING = 900;
const SPARED = 2;
const LONGEST_PAUSE = 500;
/** When more rows than this change between two drawings, a flash of all says nothing, and costs. */
const MOST_FLASHES = 100;
const STATES = {
  opening: "opening …",
  live: "live",
  "catching up": "catching up …",
  away: "reconnecting …",
  failed: "failed",
  closed: "stopped",
};
const SIGNS = { insert: "+", update: "~", delete: "−" };

export class LiveCard {
  #rows = new LiveRows();
  #elements = new Map();
  #columns = [];
  #tick = 0;
  #isScheduled = false;
  #isClosed = false;
  #notBefore = 0;
  #rate = { changes: 0, since: performance.now(), text: "" };
  #onError;
  #onClose;

  /** Subscribe to a query; `onError` is given why it failed. */
  constructor(client, sql, { onError, onClose }) {
    this.sql = sql;
    this.#onError = onError;
    this.#onClose = onClose;
    this.#build();
    this.subscription = client.subscribe(sql, {
      onBatch: (batch) => this.#take(batch),
      onState: () => this.#stateChanged(),
    });
    this.subscription.opened.then(() => this.#opened(), () => {});
    this.#timer = setInterval(() => this.#measure(), 1000);
    this.#stateChanged();
  }

  #timer;

  #build() {
    this.state = el("span", { class: "pill", "data-state": "opening" });
    this.pauseButton = el("button", { type: "button", class: "quiet", onclick: () => this.#togglePause() }, "Pause");
    this.closeButton = el(
      "button",
      { type: "button", class: "quiet", "aria-label": `Stop ${this.sql}`, onclick: () => this.close() },
      "Stop",
    );
    this.summary = el("span", { class: "summary" });
    this.head = el("tr");
    this.body = el("tbody");
    this.note = el("p", { class: "note", hidden: true });
    this.scroll = el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Live rows of ${this.sql}` },
      el("table", null, el("thead", null, this.head), this.body),
    );
    this.empty = el("p", { class: "empty" }, "Waiting for rows …");
    this.element = el(
      "article",
      { class: "card result live", "aria-label": `Live: ${this.sql}` },
      el(
        "header",
        null,
        this.state,
        el("code", { class: "query", title: this.sql }, this.sql.trim().replace(/\s+/g, " ")),
        this.summary,
        el("span", { class: "actions" }, this.pauseButton, this.closeButton),
      ),
      this.scroll,
      this.empty,
      this.note,
    );
  }

  close() {
    clearInterval(this.#timer);
    this.#isClosed = true;
    this.subscription.close();
    this.element.remove();
    this.#onClose?.(this);
  }

  // ---- from the subscription

  #opened() {
    const { columns, key } = this.subscription;
    this.#rows.ready(columns, key);
    this.#columns = columns.map(({ type }) => isNumeric(type));
    this.head.replaceChildren(
      el("th", { class: "sign", scope: "col" }, el("span", { class: "unseen" }, "change")),
      ...headRow(columns),
    );
    this.#schedule();
  }

  #take(batch) {
    // The columns are set as soon as the server says them, before the first rows.
    if (!this.#columns.length && this.subscription.columns.length) this.#opened();
    this.#rows.apply(batch);
    this.#schedule();
  }

  #stateChanged() {
    const { state, error, isWaiting } = this.subscription ?? { state: "opening" };
    const calm = this.#isPaused ? "paused" : isWaiting ? "catching up" : state;
    this.#showState(state === "live" ? calm : state);
    this.pauseButton.disabled = state !== "live";
    if (state === "failed") {
      clearInterval(this.#timer);
      this.#onError(error, this);
    }
  }

  #showState(state) {
    setData(this.state, "state", state);
    setText(this.state, STATES[state] ?? state);
  }

  #isPaused = false;

  #togglePause() {
    this.#isPaused = !this.#isPaused;
    if (this.#isPaused) this.subscription.pause();
    else this.subscription.resume();
    setText(this.pauseButton, this.#isPaused ? "Resume" : "Pause");
    this.#stateChanged();
  }

  // ---- drawing, at most once per frame however much has come

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setTimeout(() => requestAnimationFrame(() => this.#drawNow()), Math.max(0, this.#notBefore - performance.now()));
  }

  #drawNow() {
    this.#isScheduled = false;
    if (this.#isClosed) return;
    const began = performance.now();
    this.#draw();
    // With layout and paint. Most of the time is left to the other parts of the page.
    setTimeout(() => {
      const now = performance.now();
      this.#notBefore = now + Math.min(SPARED * (now - began), LONGEST_PAUSE);
    });
  }

  #draw() {
    const { isCleared, evicted, changes } = this.#rows.take();
    if (isCleared) {
      this.body.replaceChildren();
      this.#elements.clear();
    }
    const spare = evicted.map((id) => this.#remove(id)).filter(Boolean);
    this.#tick = 1 - this.#tick;
    this.body.classList.toggle("still", changes.length > MOST_FLASHES);
    const added = [];
    for (const change of changes) {
      if (change.op === "delete") this.#leave(change.id);
      else this.#show(change, added, spare);
    }
    if (this.#rows.isKeyed) this.body.append(...added);
    else this.body.prepend(...added.reverse());
    this.#summarize();
  }

  #show({ id, op, row, before, isSnapshot }, added, spare) {
    let element = this.#elements.get(id);
    if (!element) {
      element = spare.pop() ?? el("tr", null, el("td", { class: "sign" }), ...row.map(() => el("td")));
      this.#elements.set(id, element);
      added.push(element);
    }
    row.forEach((value, place) => {
      const cell = element.children[place + 1];
      if (!cell) return;
      fillCell(cell, value, this.#columns[place]);
      const isChanged = op === "update" && before && JSON_text(before[place]) !== JSON_text(value);
      if (isChanged) cell.dataset.changed = String(this.#tick);
      else delete cell.dataset.changed;
    });
    if (isSnapshot) {
      delete element.dataset.op;
      setText(element.firstChild, "");
      return;
    }
    element.dataset.op = op;
    element.dataset.tick = String(this.#tick);
    setText(element.firstChild, SIGNS[op]);
  }

  #leave(id) {
    const element = this.#elements.get(id);
    if (!element) return;
    this.#elements.delete(id);
    element.dataset.op = "delete";
    element.dataset.tick = String(this.#tick);
    setText(element.firstChild, SIGNS.delete);
    setTimeout(() => element.remove(), LEAVING);
  }

  #remove(id) {
    const element = this.#elements.get(id);
    element?.remove();
    this.#elements.delete(id);
    return element;
  }

  #summarize() {
    const { total, counts, skipped, shown } = this.#rows;
    const parts = [plural(total, "row")];
    for (const op of ["insert", "update", "delete"]) if (counts[op]) parts.push(`${SIGNS[op]}${count(counts[op])}`);
    if (this.#rate.text) parts.push(this.#rate.text);
    setText(this.summary, parts.join("  ·  "));
    this.element.dataset.total = String(total);
    this.empty.hidden = total > 0;
    const notes = [];
    if (total > shown.size)
      notes.push(`The ${count(shown.size)} most recently changed of ${plural(total, "row")} are shown.`);
    if (skipped) notes.push(`${plural(skipped, "change")} were left out: the page was too slow for them.`);
    this.note.hidden = !notes.length;
    setText(this.note, notes.join(" "));
  }

  #measure() {
    const { insert, update, delete: deleted } = this.#rows.counts;
    const changes = insert + update + deleted;
    const now = performance.now();
    const perSecond = ((changes - this.#rate.changes) * 1000) / (now - this.#rate.since);
    const text = changes > this.#rate.changes ? rate(perSecond) : "";
    const isOther = text !== this.#rate.text;
    this.#rate = { changes, since: now, text };
    if (isOther) this.#schedule();
  }
}

const JSON_text = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
