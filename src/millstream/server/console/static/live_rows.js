/**
 * The newest rows of a live result, and what to draw of them at the next frame. It has no DOM.
 *
 * However many changes come, it holds a bounded number of rows, and of the changes between two
 * frames at most one for each row that is shown. Counts are exact.
 */
export class LiveRows {
  constructor({ cap = 200, kept = 5000 } = {}) {
    this.cap = cap;
    this.keptMost = kept;
    this.places = [];
    this.clear();
    this.counts = { insert: 0, update: 0, delete: 0 };
    this.skipped = 0;
  }

  /** The columns are known: those of the key say which row is which. */
  ready(columns, key) {
    this.places = key.map((name) => columns.findIndex((each) => each.name === name)).filter((place) => place >= 0);
  }

  clear() {
    this.total = 0;
    this.shown = new Map(); // by id, the least recently changed first
    this.kept = new Map();
    this.equal = null;
    this.pending = new Map();
    this.isCleared = true;
    this.next = 0;
  }

  get isKeyed() {
    return this.places.length > 0;
  }

  apply({ kind, changes, gap }) {
    if (kind === "reset") this.clear();
    if (kind === "gap") this.skipped += gap?.count ?? 0;
    for (const change of changes) this.#change(change, kind === "snapshot");
  }

  #change({ op, row, before }, isSnapshot) {
    if (op === "insert") this.total += 1;
    else if (op === "delete") this.total -= 1;
    if (!isSnapshot) this.counts[op] += 1;
    const id = op === "insert" && !this.isKeyed ? `#${this.next++}` : this.#find(before ?? row);
    const newId = op === "update" && this.isKeyed ? this.#find(row) : id;
    if (newId !== id) {
      this.#note(id, "delete", before, null, isSnapshot);
      this.#note(newId, "insert", row, null, isSnapshot);
    } else if (id !== null) this.#note(id, op, row, before, isSnapshot);
  }

  /** The id of a row; of one without a key, that of an equal row that is kept. */
  #find(row) {
    if (this.isKeyed) return textOf(this.places.map((place) => row[place]));
    if (!this.equal) {
      this.equal = new Map(); // the ids of equal rows; made when the first row goes away
      for (const [id, each] of this.kept) this.#index(id, each);
    }
    return this.equal.get(textOf(row))?.at(-1) ?? null; // the newest is the one that may be shown
  }

  #index(id, row) {
    const text = textOf(row);
    const ids = this.equal.get(text);
    if (ids) ids.push(id);
    else this.equal.set(text, [id]);
  }

  #keep(id, row) {
    this.#drop(id);
    if (this.kept.size >= this.keptMost) this.#drop(this.kept.keys().next().value);
    this.kept.set(id, row);
    if (this.equal) this.#index(id, row);
  }

  #drop(id) {
    if (this.equal && this.kept.has(id)) {
      const text = textOf(this.kept.get(id));
      const ids = this.equal.get(text) ?? [];
      ids.splice(ids.lastIndexOf(id), 1);
      if (!ids.length) this.equal.delete(text);
    }
    this.kept.delete(id);
  }

  #note(id, op, row, before, isSnapshot) {
    if (op === "delete") this.#drop(id);
    else this.#keep(id, row);
    const earlier = this.pending.get(id);
    const isNew = earlier && earlier.op === "insert" && !this.shown.has(id);
    if (op === "delete" && !this.shown.has(id)) {
      this.pending.delete(id); // came and went between two frames, or is not shown
      return;
    }
    this.pending.delete(id);
    this.pending.set(id, { op: isNew ? "insert" : op, row, before: earlier?.before ?? before, isSnapshot });
    if (this.pending.size > 2 * this.cap + this.shown.size) this.#trim();
  }

  /** Forget the oldest changes of rows that are not shown: newer ones take their place. */
  #trim() {
    let excess = this.pending.size - this.cap - this.shown.size;
    for (const id of this.pending.keys()) {
      if (excess <= 0) return;
      if (this.shown.has(id)) continue;
      this.pending.delete(id);
      excess -= 1;
    }
  }

  /** What to draw now: whether to begin anew, which rows to remove, and the changes in order. */
  take() {
    const { isCleared, pending } = this;
    this.isCleared = false;
    this.pending = new Map();
    const changes = [];
    let deleted = 0;
    for (const [id, change] of pending) {
      this.shown.delete(id);
      if (change.op === "delete") deleted += 1;
      else this.shown.set(id, true);
      changes.push({ id, ...change });
    }
    const evicted = [];
    for (const id of this.shown.keys()) {
      if (this.shown.size <= this.cap) break;
      this.shown.delete(id);
      evicted.push(id);
    }
    if (deleted && this.shown.size < Math.min(this.cap, this.total)) this.#refill(changes);
    const gone = new Set(evicted);
    return { isCleared, evicted, changes: changes.filter(({ id }) => !gone.has(id)) };
  }

  /** Rows went away, and others are there that were not shown. */
  #refill(changes) {
    for (const [id, row] of this.kept) {
      if (this.shown.size >= this.cap) return;
      if (this.shown.has(id)) continue;
      this.shown.set(id, true);
      changes.push({ id, op: "insert", row, before: null, isSnapshot: true });
    }
  }
}

const textOf = (row) => JSON.stringify(row, (_, value) => (typeof value === "bigint" ? `${value}n` : value));
