/** Elements and texts. What comes from the database is only ever set as text. */

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** An HTML element; children are elements, or texts. */
export const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

/** Set a text only if it is another one: no layout for what stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setData(element, name, value) {
  if (element.dataset[name] !== value) element.dataset[name] = value;
}

const whole = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number) => whole.format(number);
export const short = (number) => (Math.abs(number) < 10_000 ? whole.format(Math.round(number)) : compact.format(number));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${Number(number) === 1 ? one : many}`;

/** A rate: exact while it is small. */
export function rate(perSecond) {
  if (perSecond > 0 && perSecond < 9.95) return `${perSecond.toFixed(1).replace(/\.0$/, "")}/s`;
  return `${short(perSecond)}/s`;
}

export function seconds(value) {
  if (value < 1e-3) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 2 : value < 0.1 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

const TIME = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(?:Z|\+00:00)?$/;

/** A value of a row as text. */
export function valueText(value) {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "number") return String(Math.abs(value) < 1e6 ? Number(value.toPrecision(10)) : value);
  if (typeof value === "bigint" || typeof value === "boolean") return String(value);
  if (typeof value === "string") {
    const time = TIME.exec(value);
    return time ? `${time[1]} ${time[2]}${(time[3] ?? "").replace(/0+$/, "").replace(/^\.$/, "")}` : value;
  }
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each));
}

export const isNumeric = (type) => /^(TINYINT|SMALLINT|INT|INTEGER|BIGINT|REAL|FLOAT|DOUBLE|DECIMAL)/i.test(type);

/** The cell of a value. */
export function fillCell(cell, value, numeric) {
  const text = valueText(value);
  setText(cell, text);
  cell.className = value === null || value === undefined ? "null" : numeric ? "num" : "";
  if (text.length > 40) cell.title = text.slice(0, 2000);
  else cell.removeAttribute("title");
}

export function headRow(columns) {
  return columns.map(({ name, type }) =>
    el("th", { scope: "col", class: isNumeric(type) ? "num" : null }, el("span", null, name), el("small", null, type)),
  );
}

/** Say something to those who do not see the page. */
export function announce(text) {
  setText(byId("announcer"), text);
}

export const quoted = (name) => (/^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`);
