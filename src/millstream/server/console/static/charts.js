/** Small charts of the last two minutes. */

import { el, rate, seconds, setText, short, svg } from "./dom.js";
import { HISTORY } from "./status.js";

const WIDTH = 240;
const HEIGHT = 44;

class Chart {
  #paths;
  #area;
  #format;
  #names;

  constructor(label, about, names, format) {
    this.#names = names;
    this.#format = format;
    this.value = el("span", { class: "value" }, "–");
    this.side = el("span", { class: "side-value" });
    this.#area = svg("path", { class: "area" });
    this.#paths = names.map((_, i) => svg("path", { class: `line line-${i}` }));
    this.drawing = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      this.#area,
      ...this.#paths,
    );
    this.label = label;
    this.element = el(
      "figure",
      { class: "card chart", title: about },
      el("figcaption", null, label),
      el("p", null, this.value, this.side),
      this.drawing,
    );
  }

  draw(history) {
    const series = this.#names.map((name) => history[name]);
    const top = highest(series.flat().filter((value) => value !== null));
    series.forEach((values, i) => this.#paths[i].setAttribute("d", line(values, top)));
    const main = series.at(-1);
    this.#area.setAttribute("d", area(main, top));
    const texts = series.map((values) => (values.at(-1) == null ? "–" : this.#format(values.at(-1))));
    setText(this.value, texts.at(-1));
    setText(this.side, texts.length > 1 && texts[0] !== "–" ? `p50 ${texts[0]}` : "");
    this.drawing.setAttribute("aria-label", `${this.label}: ${texts.at(-1)}`);
  }
}

const x = (i, length) => (((HISTORY - length + i) * WIDTH) / (HISTORY - 1)).toFixed(1);
const y = (value, top) => (HEIGHT - 2 - ((HEIGHT - 6) * Math.min(value, top)) / top).toFixed(1);

/** What the chart reaches up to: a single peak is cut off, so that the rest can be read. */
function highest(values) {
  const sorted = values.toSorted((one, other) => one - other);
  const [most, usual] = [sorted.at(-1) ?? 0, sorted[Math.floor(sorted.length * 0.8)] ?? 0];
  return Math.max(1e-9, usual > 0 ? Math.min(most, 3 * usual) : most);
}

function line(values, top) {
  let isDrawn = false;
  return values
    .map((value, i) => {
      if (value === null) {
        isDrawn = false;
        return "";
      }
      const point = `${isDrawn ? "L" : "M"}${x(i, values.length)} ${y(value, top)}`;
      isDrawn = true;
      return point;
    })
    .join("");
}

function area(values, top) {
  const first = values.findIndex((value) => value !== null);
  if (first < 0) return "";
  const known = values.map((value) => value ?? 0);
  const points = known.slice(first).map((value, i) => `L${x(first + i, known.length)} ${y(value, top)}`);
  return `M${x(first, known.length)} ${HEIGHT}${points.join("")}L${WIDTH} ${HEIGHT}Z`;
}

export class Charts {
  #charts = [
    new Chart("Rows in", "Rows that sources take in, per second", ["rowsIn"], rate),
    new Chart("Changes of views", "Rows that views emit, old and new ones, per second", ["changes"], rate),
    new Chart("Lag of views", "Rows that views have not taken in yet", ["lag"], (rows) => `${short(rows)} rows`),
    new Chart("Commit to client, p99", "From the commit to the frame that is sent, of the slowest relation that somebody follows", ["p50", "p99"], seconds),
  ];

  constructor(element) {
    element.replaceChildren(...this.#charts.map((each) => each.element));
  }

  draw(history) {
    for (const chart of this.#charts) chart.draw(history);
  }
}
