// The widget of db.watch: a table that changes as the result of a query does.
// Values are set as text, never as HTML.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

function element(kind, name, text = "") {
  const made = document.createElement(kind);
  made.className = name;
  made.textContent = text;
  return made;
}

function head(columns) {
  const line = document.createElement("tr");
  for (const column of columns) {
    const cell = element("th", column.number ? "ms-number" : "", column.name);
    cell.title = column.type;
    cell.scope = "col";
    line.append(cell);
  }
  return line;
}

// A row: its number, which is new when the row is, then its values.
function body(columns, rows, seen) {
  return rows.map(([number, ...values]) => {
    const line = element("tr", seen !== null && !seen.has(number) ? "ms-new" : "");
    values.forEach((value, at) => {
      const kind = columns[at].number ? "ms-number" : "";
      line.append(value === null ? element("td", `${kind} ms-null`, "NULL") : element("td", kind, value));
    });
    return line;
  });
}

function lag(status) {
  if (status.lag_ms > 0) return `${short.format(status.lag_ms)} ms behind`;
  return status.lag_rows > 0 ? `${whole.format(status.lag_rows)} rows behind` : "up to date";
}

function summary(status, shown) {
  const total = `${whole.format(status.total)} ${status.total === 1 ? "row" : "rows"}`;
  const parts = [shown < status.total ? `${whole.format(shown)} of ${total}` : total];
  if (status.state === "live") parts.push(`${short.format(status.rate)} rows/s`, lag(status));
  if (status.lost > 0) parts.push(`${whole.format(status.lost)} changes not delivered`);
  return parts.join(" · ");
}

function render({ model, el }) {
  const root = element("div", "ms-watch");
  const bar = element("div", "ms-bar");
  const state = element("span", "ms-state");
  const facts = element("span", "ms-facts");
  const stop = element("button", "ms-stop", "Stop");
  const error = element("pre", "ms-error");
  const scroll = element("div", "ms-scroll");
  const table = document.createElement("table");
  const top = document.createElement("thead");
  const rows = document.createElement("tbody");
  let seen = null; // the numbers of the rows that are shown; null: none were yet

  stop.type = "button";
  state.setAttribute("role", "status");
  stop.addEventListener("click", () => model.send({ type: "stop" }));
  table.append(top, rows);
  scroll.append(table);
  bar.append(state, facts, stop);
  root.append(bar, error, scroll);
  el.append(root);

  const drawHead = () => top.replaceChildren(head(model.get("columns")));
  const drawRows = () => {
    const found = model.get("rows");
    rows.replaceChildren(...body(model.get("columns"), found, seen));
    seen = new Set(found.map((row) => row[0]));
  };
  const drawStatus = () => {
    const status = model.get("status");
    root.dataset.state = status.state;
    state.textContent = status.state;
    facts.textContent = summary(status, model.get("rows").length);
    facts.title = model.get("sql");
    stop.hidden = status.state !== "live";
    error.textContent = status.error;
    error.hidden = !status.error;
  };

  drawHead();
  if (model.get("rows").length) drawRows();
  drawStatus();
  model.on("change:columns", drawHead);
  model.on("change:rows", drawRows);
  model.on("change:status", drawStatus);
  return () => {
    model.off("change:columns", drawHead);
    model.off("change:rows", drawRows);
    model.off("change:status", drawStatus);
  };
}

export default { render };
