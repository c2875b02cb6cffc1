/** What flows where, drawn from left to right: boxes, and lines with rows per second. */

import { el, plural, rate, setData, setText, short, svg } from "./dom.js";
import { BEHIND, trouble } from "./catalog.js";
import { HIDDEN } from "./status.js";

const BOX = { width: 172, height: 54 };
const GAP = { x: 98, y: 22 };
const SMALLEST = 0.75;
const PICKABLE = new Set(["source", "table", "view", "stream"]);
const MARGIN = 16;

/** The layer of each node: one more than the highest that it reads from. */
export function layers(nodes, edges) {
  const depth = new Map(nodes.map(({ name }) => [name, 0]));
  const inputs = new Map(nodes.map(({ name }) => [name, edges.filter(({ to }) => to === name)]));
  for (let round = 0; round < nodes.length; round++) {
    let isDone = true;
    for (const { name } of nodes) {
      const found = Math.max(0, ...inputs.get(name).map(({ from }) => (depth.get(from) ?? 0) + 1));
      if (found !== depth.get(name) && found < nodes.length) {
        depth.set(name, found);
        isDone = false;
      }
    }
    if (isDone) break;
  }
  const found = [];
  for (const node of nodes) (found[depth.get(node.name)] ??= []).push(node);
  return found.filter(Boolean);
}

/** Where each node is: level with what it reads, as far as there is room. */
export function layout(nodes, edges) {
  const columns = layers(nodes, edges);
  const rows = new Map();
  for (const column of columns) {
    const wanted = column.map((node, i) => {
      const inputs = edges.filter(({ to }) => to === node.name).map(({ from }) => rows.get(from) ?? 0);
      return { node, at: inputs.length ? inputs.reduce((sum, each) => sum + each, 0) / inputs.length : i };
    });
    wanted.sort((one, other) => one.at - other.at);
    let last = -Infinity;
    const placed = wanted.map(({ at }) => (last = Math.max(at, last + 1)));
    const excess = placed.reduce((sum, each, i) => sum + each - wanted[i].at, 0) / placed.length;
    wanted.forEach(({ node }, i) => rows.set(node.name, placed[i] - excess));
  }
  const [top, bottom] = [Math.min(...rows.values()), Math.max(...rows.values())];
  const places = new Map();
  columns.forEach((column, i) =>
    column.forEach(({ name }) =>
      places.set(name, {
        x: MARGIN + i * (BOX.width + GAP.x),
        y: MARGIN + (rows.get(name) - top) * (BOX.height + GAP.y),
      }),
    ),
  );
  return {
    places,
    width: columns.length * (BOX.width + GAP.x) - GAP.x + 2 * MARGIN,
    height: (bottom - top) * (BOX.height + GAP.y) + BOX.height + 2 * MARGIN,
  };
}

export class Topology {
  #element;
  #onPick;
  #shape = "";
  #boxes = new Map();
  #lines = new Map();

  constructor(element, onPick) {
    this.#element = element;
    this.#onPick = onPick;
  }

  draw(status) {
    const { nodes, edges } = status;
    const shape = JSON.stringify([nodes, edges.map(({ from, to }) => [from, to])]);
    if (shape !== this.#shape) {
      this.#shape = shape;
      this.#build(nodes, edges);
    }
    const relations = new Map([...status.relations()].map((each) => [each.name, each]));
    for (const node of nodes) this.#update(node, relations.get(node.name), status);
    for (const edge of edges) this.#flow(edge, status.edgeRate(edge));
  }

  clear() {
    this.#shape = "";
    this.#element.replaceChildren();
  }

  #build(nodes, edges) {
    this.#boxes.clear();
    this.#lines.clear();
    if (!nodes.length) {
      const text = "Nothing flows yet. What sources, views and subscribers there are is drawn here, with rows per second.";
      this.#element.replaceChildren(el("p", { class: "empty" }, text));
      return;
    }
    const { places, width, height } = layout(nodes, edges);
    const drawing = svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Topology" },
      svg(
        "defs",
        null,
        svg(
          "marker",
          { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" },
          svg("path", { d: "M0 0.500L8 4L0 7.500Z", class: "arrow" }),
        ),
      ),
      ...edges.filter(({ from, to }) => places.has(from) && places.has(to)).map((edge) => this.#line(edge, places)),
      ...nodes.map((node) => this.#box(node, places.get(node.name))),
    );
    // A drawing that is a little too wide is drawn smaller; one that is much too wide scrolls.
    drawing.style.minWidth = `${Math.round(width * SMALLEST)}px`;
    // The labels of lines are above all boxes.
    drawing.append(...[...this.#lines.values()].map(({ label }) => label));
    const list = edges.map(({ from, to }) => el("li", null, `${from} flows into ${to}`));
    this.#element.replaceChildren(
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Drawing of the topology" }, drawing),
      el("ul", { class: "unseen" }, ...list),
    );
  }

  #box(node, { x, y }) {
    const isPickable = PICKABLE.has(node.kind);
    const note = svg("text", { x: 16, y: 40, class: "note" });
    const title = svg("title", null, node.name);
    const pick = () => isPickable && this.#onPick(node.name);
    const group = svg(
      "g",
      {
        class: "node",
        "data-kind": node.kind,
        transform: `translate(${x} ${y})`,
        tabindex: isPickable ? "0" : null,
        role: isPickable ? "button" : "img",
        onclick: pick,
        onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), pick()),
      },
      title,
      svg("rect", { width: BOX.width, height: BOX.height, rx: 9, class: "box" }),
      svg("rect", { x: 0, y: 10, width: 3.5, height: BOX.height - 20, rx: 1.75, class: "stripe" }),
      svg("text", { x: 16, y: 22, class: "name" }, fitted(node.kind === HIDDEN ? "a followed query" : node.name)),
      note,
    );
    this.#boxes.set(node.name, { group, note });
    return group;
  }

  #line({ from, to }, places) {
    const [a, b] = [places.get(from), places.get(to)];
    const [x1, y1] = [a.x + BOX.width, a.y + BOX.height / 2];
    const [x2, y2] = [b.x - 2, b.y + BOX.height / 2];
    const bend = (x2 - x1) / 2;
    const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
    const text = svg("text", { "text-anchor": "middle", dy: "0.35em" });
    const plate = svg("rect", { height: 18, rx: 9, y: -9 });
    const label = svg("g", { class: "label", transform: `translate(${(x1 + x2) / 2} ${(y1 + y2) / 2})` }, plate, text);
    const still = svg("path", { d, class: "edge", "marker-end": "url(#arrow)" });
    const flow = svg("path", { d, class: "flow" });
    this.#lines.set(`${from}\n${to}`, { text, plate, label, flow });
    return svg("g", null, still, flow);
  }

  #update(node, relation, status) {
    const box = this.#boxes.get(node.name);
    if (!box) return;
    const why = relation ? trouble(relation) : "";
    const note = relation ? described(node.kind, relation) : this.#reader(node, status);
    setText(box.note, note);
    setData(box.group, "state", why ? "failed" : "calm");
    const flow = status.rate(node.name);
    const label = [`${node.kind} ${node.name}`, note, flow > 0 && `${rate(flow)}`, why].filter(Boolean).join(", ");
    if (box.group.getAttribute("aria-label") !== label) box.group.setAttribute("aria-label", label);
  }

  #reader({ name, kind }, status) {
    const rows = status.edges.find(({ to }) => to === name)?.rows;
    return kind === "subscription" && rows !== undefined ? `${short(rows)} delivered` : kind;
  }

  #flow(edge, perSecond) {
    const line = this.#lines.get(`${edge.from}\n${edge.to}`);
    if (!line) return;
    const text = perSecond > 0 ? `${short(perSecond < 1 ? 1 : perSecond)} rows/s` : "";
    setText(line.text, perSecond > 0 && perSecond < 1 ? "< 1 row/s" : text);
    line.label.classList.toggle("none", !text);
    const width = 7 * line.text.textContent.length + 14;
    line.plate.setAttribute("width", width);
    line.plate.setAttribute("x", -width / 2);
    setData(line.flow, "speed", perSecond <= 0 ? "none" : perSecond < 100 ? "slow" : perSecond < 10_000 ? "medium" : "fast");
  }
}

function described(kind, { rows, state, pushed, lag_rows: lag, emit }) {
  if (kind === "source") return pushed === undefined ? "source" : `source · ${short(pushed)} in`;
  const size = kind === "stream" || emit === "late rows" || rows === undefined ? "" : ` · ${plural(rows, "row")}`;
  const pace = state && kind !== "table" ? ` · ${lag > BEHIND ? `${short(lag)} behind` : state}` : "";
  return `${kind}${size}${pace}`;
}

const fitted = (name) => (name.length > 20 ? `${name.slice(0, 19)}…` : name);
