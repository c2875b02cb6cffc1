/** The answer to a statement: its rows, its status, or what is wrong with it. */

import { announce, count, el, fillCell, headRow, isNumeric, plural } from "./dom.js";

const MOST = 1000;

/** The rows of an answer, or its status. */
export function resultCard({ columns, rows, status, rowcount, catching_up: late = [] }, sql, milliseconds) {
  const took = `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  const summary = columns.length ? `${plural(rows.length, "row")}  ·  ${took}` : took;
  announce(columns.length ? plural(rows.length, "row") : status);
  return el(
    "article",
    { class: "card result", "aria-label": "Result" },
    el(
      "header",
      null,
      el("span", { class: "pill", "data-state": "done" }, columns.length ? "result" : "done"),
      late.length > 0 && el("span", { class: "pill", "data-state": "catching up" }, `${late.join(", ")}: catching up`),
      el("code", { class: "query", title: sql }, sql.trim().replace(/\s+/g, " ")),
      el("span", { class: "summary" }, summary),
    ),
    columns.length ? table(columns, rows) : el("p", { class: "empty" }, done(status, rowcount)),
    rows.length > MOST && el("p", { class: "note" }, `The first ${count(MOST)} of ${plural(rows.length, "row")} are shown.`),
  );
}

function done(status, rowcount) {
  const isCounted = /^(INSERT|UPDATE|DELETE)/.test(status);
  return isCounted ? `${status.split(" ")[0]}: ${plural(rowcount, "row")}.` : `${status}: done.`;
}

function table(columns, rows) {
  if (!rows.length) return el("p", { class: "empty" }, `No rows. Columns: ${columns.map(({ name }) => name).join(", ")}.`);
  const numeric = columns.map(({ type }) => isNumeric(type));
  const body = el("tbody");
  for (const row of rows.slice(0, MOST)) {
    const line = el("tr");
    row.forEach((value, place) => {
      const cell = el("td");
      fillCell(cell, value, numeric[place]);
      line.append(cell);
    });
    body.append(line);
  }
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" },
    el("table", null, el("thead", null, el("tr", null, ...headRow(columns))), body),
  );
}

/** What is wrong: in which place of the text, and what to do. */
export function errorCard({ code = "ERROR", message, hint, line, column }, sql) {
  announce(`Error: ${message}`);
  const text = line ? (sql.split("\n")[line - 1] ?? "") : "";
  return el(
    "article",
    { class: "card result error", role: "alert", "aria-label": "Error" },
    el(
      "header",
      null,
      el("span", { class: "pill", "data-state": "failed" }, code),
      line && el("span", { class: "summary" }, `line ${line}${column ? `, column ${column}` : ""}`),
    ),
    el("p", { class: "message" }, sentence(message)),
    text.trim() && place(text, column),
    hint && el("p", { class: "hint" }, el("strong", null, "Hint "), hint),
  );
}

function place(text, column) {
  const from = Math.max(0, (column ?? 1) - 1);
  const word = /^(\w+|\S)/.exec(text.slice(from))?.[0].length ?? 1;
  return el(
    "pre",
    { class: "place" },
    text.slice(0, from),
    el("mark", null, text.slice(from, from + word) || " "),
    text.slice(from + word),
  );
}

const sentence = (text) => (/^[a-z]+ /.test(text) ? text[0].toUpperCase() + text.slice(1) : text).replace(/([^.!?])$/, "$1.");
