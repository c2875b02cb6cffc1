/** What exists and how it is, asked for every second while somebody looks. */

const EVERY = 1000;
const WINDOW = 4;
export const HISTORY = 120;
export const HIDDEN = "hidden view";
const LATENCY = /^millstream_delivery_seconds\{relation="(.*)",quantile="(0\.5|0\.99)"\} (\S+)$/gm;
const KINDS = ["sources", "tables", "views", "streams"];

/** How fast counters grow, over the last few samples. */
class Rates {
  #samples = [];

  take(counters, now) {
    this.#samples.push({ counters, now });
    if (this.#samples.length > WINDOW) this.#samples.shift();
  }

  of(name) {
    const newest = this.#samples.at(-1);
    const oldest = this.#samples.find(({ counters }) => counters.has(name));
    if (!newest || !oldest || oldest === newest || !newest.counters.has(name)) return 0;
    const grown = newest.counters.get(name) - oldest.counters.get(name);
    return grown > 0 ? (grown * 1000) / (newest.now - oldest.now) : 0; // less: it was opened anew
  }
}

/** Hidden views, which subscriptions to any SELECT share, are no nodes of their own. */
function unnamed(nodes, edges) {
  const known = new Set(nodes.map(({ name }) => name));
  const names = new Set(edges.flatMap(({ from, to }) => [from, to]).filter((name) => !known.has(name)));
  return [...names].map((name) => ({ name, kind: HIDDEN }));
}

/** An event "sample" comes with each answer. */
export class Status extends EventTarget {
  catalog = { lsn: 0, sources: [], tables: [], views: [], streams: [] };
  nodes = [];
  edges = [];
  hasMeasures = true;
  history = { rowsIn: [], changes: [], lag: [], p50: [], p99: [] };
  #client;
  #rates = new Rates();
  #timer = 0;
  #isStopped = false;
  #onVisible = () => !document.hidden && this.now();

  constructor(client) {
    super();
    this.#client = client;
    document.addEventListener("visibilitychange", this.#onVisible);
    this.now();
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#onVisible);
  }

  /** Ask at once: something was changed here. */
  now() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), 0);
  }

  /** Rows per second that a relation gives. */
  rate(name) {
    return this.#rates.of(name);
  }

  edgeRate({ from, to }) {
    return this.#rates.of(`${from}\n${to}`);
  }

  async #ask() {
    this.#timer = -1;
    if (!document.hidden && this.#client.state === "open") {
      try {
        const [catalog, topology, measures] = await Promise.all([
          this.#client.get("/v1/catalog"),
          this.#client.get("/v1/topology"),
          this.hasMeasures ? this.#client.get("/metrics").catch((error) => this.#noMeasures(error)) : "",
        ]);
        if (!this.#isStopped) this.#take(catalog, topology, measures);
      } catch {
        // The server is away; the connection says so, and heals by itself.
      }
    }
    if (!this.#isStopped && this.#timer === -1) this.#timer = setTimeout(() => this.#ask(), EVERY);
  }

  /** Counters are of all tenants: a key of one may not see them. */
  #noMeasures(error) {
    if (error.code !== "TENANT") throw error;
    this.hasMeasures = false;
    return "";
  }

  #take(catalog, { nodes, edges }, measures) {
    const now = performance.now();
    const counters = new Map();
    for (const { name, pushed } of catalog.sources) if (pushed !== undefined) counters.set(name, pushed);
    for (const kind of ["views", "streams"])
      for (const { name, changes } of catalog[kind]) if (changes !== undefined) counters.set(name, changes);
    for (const { from, to, rows } of edges) {
      if (rows === undefined) continue;
      counters.set(`${from}\n${to}`, rows);
      if (!counters.has(from) && catalog.tables.some(({ name }) => name === from)) counters.set(from, rows);
    }
    this.#rates.take(counters, now);
    Object.assign(this, { catalog, nodes: [...nodes, ...unnamed(nodes, edges)], edges });
    this.#remember(measures);
    this.dispatchEvent(new Event("sample"));
  }

  #remember(measures) {
    const { sources, views, streams } = this.catalog;
    const sum = (rows, value) => rows.reduce((total, each) => total + (value(each) ?? 0), 0);
    const latencies = { 0.5: [], 0.99: [] };
    for (const [, , quantile, value] of measures.matchAll(LATENCY)) latencies[quantile].push(Number(value));
    const worst = (values) => (values.length ? Math.max(...values) : null);
    const sample = {
      rowsIn: sum(sources, ({ name }) => this.rate(name)),
      changes: sum([...views, ...streams], ({ name }) => this.rate(name)),
      lag: sum([...views, ...streams], ({ lag_rows }) => lag_rows),
      p50: worst(latencies["0.5"]),
      p99: worst(latencies["0.99"]),
    };
    for (const [name, value] of Object.entries(sample)) {
      this.history[name].push(value);
      if (this.history[name].length > HISTORY) this.history[name].shift();
    }
  }

  /** Everything that exists, with its kind. */
  *relations() {
    for (const kind of KINDS) for (const each of this.catalog[kind]) yield { kind: kind.slice(0, -1), ...each };
  }
}
