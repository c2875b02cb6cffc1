/** The editor: a text area over a copy of its text with colours, so that it stays a text area. */

import { byId, el } from "./dom.js";

const WORDS =
  "ADD ALL ALLOW ALTER AND AS ASC ASOF BETWEEN BY CASE CAST CHANGES CLOSE COLUMN CREATE CROSS DATA DELETE DESC DESCRIBE DISTINCT DROP ELSE EMIT END EVERY EXCEPT EXISTS EXPLAIN FALSE FINAL FOR FROM FULL GROUP HAVING IF IGNORE IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN KEY LATE LATENESS LEFT LIKE LIMIT LISTEN LIVE MATERIALIZED NOT NOTIFY NULL OF ON OR ORDER OUTER OVER PARTITION PRIMARY REPLACE RIGHT SELECT SET SHOW SINCE SOURCE SOURCES STREAM STREAMS SUBSCRIBE SUBSCRIPTION SUBSCRIPTIONS TABLE TABLES THEN TO TRUE UNION UNLISTEN UPDATE VALUES VIEW VIEWS WATERMARK WHEN WHERE WITH";
const TYPES = "BIGINT BINARY BOOLEAN DATE DECIMAL DOUBLE FLOAT INT INTEGER REAL SMALLINT STRING TIMESTAMP TINYINT VARCHAR";
const KEYWORDS = new Map([...WORDS.split(" ").map((word) => [word, "keyword"]), ...TYPES.split(" ").map((word) => [word, "type"])]);
const PIECE = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^'\\]|\\.|'')*(?:'|$))|("(?:[^"]|"")*(?:"|$)|`[^`]*(?:`|$))|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)/g;
const COMMENT = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g;
const HISTORY = "millstream.history";
const MOST = 50;

const PARTS = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|[rR]'[^']*(?:'|$)|'(?:[^'\\]|\\.|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|`[^`]*(?:`|$)|;/g;
const blank = (text) => text.replace(/[^\n]/g, " ");

/** A text as all but its last statement, and the last one, in its place. */
export function split(text) {
  const isEmpty = (part) => !part.replace(COMMENT, "").trim();
  let [begin, end] = [0, text.length];
  for (const { 0: part, index } of text.matchAll(PARTS)) {
    if (part !== ";") continue;
    if (isEmpty(text.slice(index + 1).replaceAll(";", ""))) {
      end = index;
      break;
    }
    begin = index + 1;
  }
  return { before: text.slice(0, begin), last: blank(text.slice(0, begin)) + text.slice(begin, end) };
}

/**
 * The query that a statement asks to be followed, in its place: LIVE SELECT ..., SUBSCRIBE [TO]
 * name, or SUBSCRIBE SELECT .... Null for any other.
 */
export function followed(statement) {
  const bare = statement.replace(COMMENT, blank).trimEnd();
  const found = /^(\s*(?:LIVE|SUBSCRIBE(?:\s+TO)?)\s+)(?=\S)/i.exec(bare);
  if (!found) return null;
  const rest = bare.slice(found[1].length);
  if (/^\s*LIVE\s/i.test(found[1]) && !/^(SELECT|WITH)\b/i.test(rest)) return null;
  if (/^(\w+|"(?:[^"]|"")+")$/.test(rest)) return `SELECT * FROM ${rest}`;
  return blank(found[1]) + rest;
}

export class Editor {
  #area = byId("sql");
  #copy = byId("sql-colours");
  #mark = null;
  #history = readHistory();
  #place = this.#history.length;

  constructor({ onRun, onFollow }) {
    this.#area.addEventListener("input", () => this.#changed());
    this.#area.addEventListener("scroll", () => this.#scrolled());
    this.#area.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
        event.preventDefault();
        (event.shiftKey ? onFollow : onRun)();
      } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
        event.preventDefault();
        this.#recall(event.key === "ArrowUp" ? -1 : 1);
      }
    });
    this.#changed();
  }

  /** What is to be run: what is selected, else all; the rest is blank, so that places hold. */
  get text() {
    const { value, selectionStart: from, selectionEnd: to } = this.#area;
    const selected = value.slice(from, to);
    if (!selected.trim() || document.activeElement !== this.#area) return value;
    return value.slice(0, from).replace(/[^\n]/g, " ") + selected;
  }

  set text(text) {
    this.#area.value = text;
    this.#changed();
  }

  focus() {
    this.#area.focus();
  }

  /** Show where an error is. */
  mark(line, column) {
    this.#mark = line ? offset(this.#area.value, line, column ?? 1) : null;
    if (this.#mark !== null && document.activeElement === this.#area)
      this.#area.setSelectionRange(this.#mark, this.#mark);
    this.#draw();
  }

  remember(text) {
    if (!text.trim() || text === this.#history.at(-1)) return;
    this.#history = [...this.#history, text].slice(-MOST);
    this.#place = this.#history.length;
    try {
      sessionStorage.setItem(HISTORY, JSON.stringify(this.#history));
    } catch {
      // A full store: the history of this page still works.
    }
  }

  #recall(step) {
    const place = Math.min(Math.max(this.#place + step, 0), this.#history.length);
    if (place === this.#place) return;
    this.#place = place;
    this.text = this.#history[place] ?? "";
  }

  #changed() {
    this.#mark = null;
    this.#area.rows = Math.min(16, Math.max(4, this.#area.value.split("\n").length + 1));
    this.#draw();
  }

  #draw() {
    this.#copy.replaceChildren(...coloured(this.#area.value, this.#mark), "\n");
    this.#scrolled();
  }

  #scrolled() {
    this.#copy.scrollTop = this.#area.scrollTop;
    this.#copy.scrollLeft = this.#area.scrollLeft;
  }
}

function offset(text, line, column) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return Math.min(before + column - 1, Math.max(0, text.length - 1));
}

function* coloured(text, mark) {
  let end = 0;
  for (const piece of text.matchAll(PIECE)) {
    const [all, comment, string, name, number, word] = piece;
    const kind = comment ? "comment" : string ? "string" : name ? "name" : number ? "number" : KEYWORDS.get(word.toUpperCase());
    const isMarked = mark !== null && piece.index <= mark && mark < piece.index + all.length;
    if (!kind && !isMarked) continue;
    if (piece.index > end) yield* plain(text, end, piece.index, mark);
    yield el("span", { class: [kind, isMarked && "marked"].filter(Boolean).join(" ") }, all);
    end = piece.index + all.length;
  }
  yield* plain(text, end, text.length, mark);
}

function* plain(text, from, to, mark) {
  if (mark === null || mark < from || mark >= to) {
    yield text.slice(from, to);
    return;
  }
  yield text.slice(from, mark);
  yield el("span", { class: "marked" }, text[mark] === "\n" ? " \n" : text[mark]);
  yield text.slice(mark + 1, to);
}

function readHistory() {
  try {
    const found = JSON.parse(sessionStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}
