/**
 * Millstream in the browser: SQL, rows in, changes out.
 *
 *     import { connect } from "/v1/millstream.js";
 *     const db = await connect(location.origin);            // { key: "msk_..." } with --auth
 *     await db.push("trades", [{ symbol: "AAPL", price: 187.2 }]);
 *     for await (const batch of db.subscribe("SELECT * FROM trades"))
 *       for (const { op, row, before } of batch.changes) ...
 *
 * All subscriptions are on one WebSocket; where there is none, each is on Server-Sent Events. When
 * the connection breaks, another one is made, and each subscription goes on after the last token
 * that it was given: nothing is lost, nothing comes twice. docs/wire-protocol.md has the frames.
 */

const FIRST_DELAY = 50;
const LONGEST_DELAY = 2000;
const LASTING = 10_000;
const SILENCE = 20_000;
const FAILURES = 2;
const PASSING = new Set(["CLOSED", "LIMIT", "QUERY_TIMEOUT", "SUBSCRIPTION_EXISTS", "DISCONNECTED"]);
const LONG_NUMBER = /[[,:]-?\d{16,}[,\]}]/;

/** An error of the server: its code, what it says, what to do, and of SQL the place. */
export class MillstreamError extends Error {
  constructor({ code = "SERVER", message = "", hint = "", line = null, column = null } = {}) {
    super(message);
    this.name = "MillstreamError";
    Object.assign(this, { code, hint, line, column });
  }
}

/** The server cannot be reached, or has not answered. */
export class DisconnectedError extends MillstreamError {
  constructor(message, hint = "is the server running?") {
    super({ code: "DISCONNECTED", message, hint });
    this.name = "DisconnectedError";
  }
}

/** Connect to a server. Throws if it cannot be reached in time, or the key is wrong. */
export async function connect(url = globalThis.location?.origin, options = {}) {
  const client = new Client(url, options);
  try {
    await client.query("SHOW TABLES LIKE ''");
  } catch (error) {
    client.close();
    throw error;
  }
  return client;
}

/** JSON whose integers beyond 2^53 are BigInt, where the browser can tell. */
export function parse(text) {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

function* delays() {
  for (let longest = FIRST_DELAY; ; longest = Math.min(2 * longest, LONGEST_DELAY))
    yield longest * (0.5 + Math.random() / 2);
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

/**
 * A served database. `state` is "connecting", "open", "away", "refused" or "closed"; each change of
 * it is an event "state". `error` says why it is refused.
 */
export class Client extends EventTarget {
  #key;
  #link;

  constructor(url, { key = null, timeout = 10_000 } = {}) {
    super();
    this.url = String(url).replace(/\/+$/, "");
    this.timeout = timeout;
    this.state = "connecting";
    this.error = null;
    this.#key = key;
    this.#link = new Link(this, key);
  }

  /** Run statements: the columns, rows and status of the last one. Never sent twice. */
  async execute(sql, params = null) {
    if (this.state === "away") await this.#back();
    return this.#sql(sql, params, false);
  }

  /** The rows of a SELECT or SHOW as objects. Sent again while the server is away. */
  async query(sql, params = null) {
    const { columns, rows } = await this.#sql(sql, params, true);
    return rows.map((row) => Object.fromEntries(columns.map(({ name }, i) => [name, row[i]])));
  }

  /** Add rows, objects by column, to a source or a table: once, however often they are sent. */
  async push(name, rows) {
    const body = JSON.stringify(Array.isArray(rows) ? rows : [rows], (_, value) =>
      typeof value === "bigint" ? (JSON.rawJSON?.(String(value)) ?? Number(value)) : value,
    );
    const headers = { "Content-Type": "application/json", "Idempotency-Key": randomKey() };
    const path = `/v1/sources/${encodeURIComponent(name)}`;
    return this.#send(path, { method: "POST", headers, body }, true);
  }

  /**
   * The changes of a query's result: iterate over it, or give a function as `onBatch`.
   * A batch is { kind, changes, token, lsn }, of kind "snapshot", "changes", "gap" or "reset";
   * after a reset all rows from before are to be discarded.
   */
  subscribe(sql, options = {}) {
    return this.#link.add(new Subscription(this.#link, sql, options));
  }

  /** Call a function for each message on a channel; returns a function that ends it. */
  listen(channel, call) {
    return this.#link.listen(channel, call);
  }

  /** Send a message to all who listen on a channel. */
  notify(channel, payload = "") {
    return this.#link.ask({ type: "notify", channel, payload });
  }

  /** What is at a path of the server, such as "/v1/catalog"; text, unless it is JSON. */
  get(path) {
    return this.#send(path, { method: "GET" }, true);
  }

  /** End all subscriptions, and the connection. */
  close() {
    this.#link.close();
  }

  /** A request with the key, for what is not in this class. */
  fetch(path, { headers = {}, ...rest } = {}) {
    const bearer = this.#key ? { Authorization: `Bearer ${this.#key}` } : {};
    const options = { cache: "no-store", credentials: "omit", redirect: "error", ...rest };
    return fetch(this.url + path, { ...options, headers: { ...headers, ...bearer } });
  }

  become(state, error = null) {
    if (this.state === state || this.state === "closed") return;
    this.state = state;
    this.error = error;
    this.dispatchEvent(new Event("state"));
  }

  #sql(sql, params, again) {
    const body = JSON.stringify(params === null ? { sql } : { sql, params });
    const headers = { "Content-Type": "application/json" };
    return this.#send("/v1/sql", { method: "POST", headers, body }, again);
  }

  async #send(path, options, again) {
    const until = performance.now() + this.timeout;
    for (const delay of delays()) {
      if (this.state === "closed") throw new MillstreamError({ code: "CLOSED", message: "the client is closed" });
      const { content, failure, passes } = await this.#attempt(path, options);
      if (!failure) return content;
      if (!(again && passes) || performance.now() + delay > until) throw failure;
      await sleep(delay);
    }
  }

  async #attempt(path, options) {
    let answer, text;
    try {
      answer = await this.fetch(path, options);
      text = await answer.text();
    } catch {
      const hint = "whether it has run is not known, if it was sent at all: look before you repeat it";
      return { failure: new DisconnectedError("no answer from the server", hint), passes: true };
    }
    if (answer.ok) {
      const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
      return { content: isJson ? parse(text) : text };
    }
    return { failure: refusal(answer, text), passes: answer.status === 503 };
  }

  #back() {
    return new Promise((done) => {
      const finish = () => {
        clearTimeout(timer);
        this.removeEventListener("state", finish);
        done();
      };
      const timer = setTimeout(finish, this.timeout);
      this.addEventListener("state", finish);
    });
  }
}

function refusal(answer, text) {
  try {
    return new MillstreamError(JSON.parse(text).error);
  } catch {
    return new DisconnectedError(`an answer with status ${answer.status} that is not Millstream's`);
  }
}

/** The frames of one subscription as batches, across connections. It does no I/O. */
export class Frames {
  token = "";
  lsn = 0;
  columns = [];
  key = [];
  #hasBegun = false;
  #inSnapshot = false;
  #isDurable;

  /** A durable one begins after its last acknowledgement, so what has come before is dropped. */
  constructor({ isDurable = false } = {}) {
    this.#isDurable = isDurable;
  }

  /** Where to begin on a new connection, if the caller has asked for `start`. */
  start(start) {
    const isNamed = this.#hasBegun || start == null || start === "now" || start === "snapshot";
    return this.token && isNamed ? this.token : start;
  }

  /** A new connection: what has come of a snapshot in part will come again. */
  reconnected() {
    if (!this.#inSnapshot) return null;
    this.#inSnapshot = false;
    return this.#batch("reset", { gap: null });
  }

  ready({ columns, key, ...frame }) {
    Object.assign(this, { columns, key });
    if (!this.token) this.#passed(frame);
  }

  read(frame) {
    const { type } = frame;
    if (type === "reset") {
      this.#inSnapshot = true;
      return this.#batch("reset", { gap: frame.gap });
    }
    if (type === "gap") return this.#batch("gap", { gap: frame });
    if (type === "snapshot" && !(frame.token && frame.lsn)) {
      this.#inSnapshot = true; // a part of a state is at no LSN: nobody can resume from there
      return this.#batch("snapshot", frame);
    }
    this.#hasBegun = true;
    this.#inSnapshot = false;
    if (type === "changes" && this.#isDurable) {
      frame = { ...frame, changes: frame.changes.filter(({ lsn }) => lsn > this.lsn) };
      if (!frame.changes.length) return null;
    }
    this.#passed(frame);
    return type === "snapshot" || type === "changes" ? this.#batch(type, frame) : null;
  }

  #passed({ token, lsn }) {
    if (token && !(this.#isDurable && lsn < this.lsn)) [this.token, this.lsn] = [token, lsn];
  }

  #batch(kind, { changes = [], gap = null }) {
    return { kind, changes, gap, token: this.token, lsn: this.lsn };
  }
}

/**
 * A subscription. `columns` and `key` are known once `opened` resolves; `state` is "opening",
 * "live", "away", "failed" or "closed", and `onState` is called when it changes. `isWaiting`: the
 * view that it reads is catching up, and its rows come then.
 */
export class Subscription {
  #link;
  #wanted;
  #frames;
  #given = "";
  #batches = [];
  #rows = 0;
  #limit;
  #onBatch;
  #onState;
  #holdsServer = false;
  #isPaused = false;
  #waiters = [];
  #settle;

  constructor(link, sql, { params = null, start = null, name = null, bufferRows = 16_384, onBatch = null, onState = null, ...options }) {
    this.sql = sql;
    this.state = "opening";
    this.isWaiting = false;
    this.error = null;
    this.#link = link;
    this.#limit = bufferRows;
    this.#onBatch = onBatch;
    this.#onState = onState;
    this.#frames = new Frames({ isDurable: name !== null });
    this.#wanted = { sql, params, start, name, buffer_rows: bufferRows };
    for (const name of ["backpressure", "maxRows", "maxDelay"])
      this.#wanted[name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`)] = options[name] ?? null;
    this.opened = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.opened.catch(() => {});
  }

  get columns() {
    return this.#frames.columns;
  }
  get key() {
    return this.#frames.key;
  }
  /** Another subscription of the same query goes on from here: `{ start: token }`. */
  get token() {
    return this.#frames.token;
  }
  get isOver() {
    return this.state === "failed" || this.state === "closed";
  }

  /** Hand over nothing until `resume`. */
  pause() {
    this.#isPaused = true;
    this.#hold();
  }

  resume() {
    this.#isPaused = false;
    if (this.#onBatch) for (const batch of this.#batches.splice(0)) this.#call(batch);
    this.#hold();
  }

  close() {
    this.#link.remove(this);
    this.#end("closed");
  }

  /**
   * Of one with a `name`: acknowledge everything up to a batch or a token, or all that was handed
   * over. Opened the next time, it goes on after it. Throws while the server is away.
   */
  ack(batch = this.#given) {
    return this.#link.acknowledge(this, batch?.token ?? batch);
  }

  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        while (this.#batches.length && !this.#isPaused) {
          const batch = this.#batches.shift();
          this.#rows -= batch.changes.length;
          this.#given = batch.token;
          this.#hold();
          yield batch;
        }
        if (this.state === "failed" && !this.#batches.length) throw this.error;
        if (this.isOver && !this.#batches.length) return;
        await new Promise((wake) => this.#waiters.push(wake));
      }
    } finally {
      this.close();
    }
  }

  // ---- for the link

  /** The options that open it on a new connection, after all that has come before. */
  opening() {
    this.#deliver(this.#frames.reconnected());
    this.#holdsServer = false;
    const wanted = { ...this.#wanted, start: this.#frames.start(this.#wanted.start) };
    return Object.fromEntries(Object.entries(wanted).filter(([, value]) => value != null));
  }

  take(frame) {
    if (frame.type === "ready") {
      this.#frames.ready(frame);
      this.#become("live");
      this.#settle.resolve(this);
      this.#hold();
    } else if (frame.type === "error") {
      const error = new MillstreamError(frame.error);
      if (this.state === "live" && error.code === "BAD_REQUEST") return; // a pause that came late
      if (this.state === "away" && PASSING.has(error.code)) throw error;
      this.fail(error);
    } else if (frame.type === "waiting") {
      this.isWaiting = true;
      this.#onState?.(this);
    } else {
      if (this.isWaiting) {
        this.isWaiting = false;
        this.#onState?.(this);
      }
      this.#deliver(this.#frames.read(frame));
    }
  }

  away() {
    if (this.state === "live") this.#become("away");
  }

  fail(error) {
    this.#link.remove(this);
    this.error ??= error;
    this.#end("failed");
    this.#settle.reject(error);
  }

  /** Resolves when there is room for more; for a connection of its own. */
  async room() {
    while (this.#isFull && !this.isOver) await new Promise((wake) => this.#waiters.push(wake));
  }

  #end(state) {
    if (!this.isOver) this.#become(state);
    this.#settle.reject(new MillstreamError({ code: "CLOSED", message: "the subscription is closed" }));
  }

  #become(state) {
    this.state = state;
    this.#wake();
    this.#onState?.(this);
  }

  #deliver(batch) {
    if (!batch || this.isOver) return;
    this.#rows += batch.changes.length;
    if (this.#onBatch && !this.#isPaused) {
      this.#call(batch);
      return;
    }
    this.#batches.push(batch);
    this.#hold();
  }

  #call(batch) {
    this.#rows -= batch.changes.length;
    this.#given = batch.token;
    this.#onBatch(batch, this);
  }

  get #isFull() {
    return this.#isPaused || this.#rows > (this.#holdsServer ? this.#limit / 2 : this.#limit);
  }

  #hold() {
    const isFull = this.#isFull;
    if (isFull !== this.#holdsServer && this.state === "live") {
      this.#holdsServer = isFull;
      this.#link.tell(this, isFull ? "pause" : "resume");
    }
    this.#wake();
  }

  #wake() {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}

/** All subscriptions of a client, and the connection that they are on, made again when it breaks. */
class Link {
  #client;
  #key;
  #socket = null;
  #isClosed = false;
  #usesEvents = false;
  #failures = 0;
  #delays = delays();
  #numbers = 0;
  #subscriptions = new Map();
  #channels = new Map();
  #answers = new Map();
  #acks = new Map();
  #streams = new Map();
  #heard = 0;
  #since = Infinity;
  #timers = new Set();
  #retry = null;
  #wakeUp = () => this.#retry && document.visibilityState !== "hidden" && this.#retryNow();

  constructor(client, key) {
    this.#client = client;
    this.#key = key;
    globalThis.addEventListener?.("online", this.#wakeUp);
    globalThis.document?.addEventListener("visibilitychange", this.#wakeUp);
    this.#timers.add(setInterval(() => this.#watch(), SILENCE / 2));
    queueMicrotask(() => this.#connect());
  }

  add(subscription) {
    const number = ++this.#numbers;
    this.#subscriptions.set(number, subscription);
    if (this.#isClosed) subscription.fail(new MillstreamError({ code: "CLOSED", message: "the client is closed" }));
    else if (this.#usesEvents) this.#follow(number, subscription);
    else if (this.#isOpen) this.#open(number, subscription);
    return subscription;
  }

  remove(subscription) {
    const number = this.#numberOf(subscription);
    if (number === undefined) return;
    this.#subscriptions.delete(number);
    this.#streams.get(number)?.abort();
    this.#streams.delete(number);
    if (!this.#usesEvents) this.#send({ type: "unsubscribe", id: number });
  }

  tell(subscription, type) {
    if (!this.#usesEvents) this.#send({ type, id: this.#numberOf(subscription) });
  }

  listen(channel, call) {
    const calls = this.#channels.get(channel) ?? new Set();
    calls.add(call);
    this.#channels.set(channel, calls);
    this.#send({ type: "listen", id: 0, channel });
    return () => {
      calls.delete(call);
      if (calls.size || this.#channels.get(channel) !== calls) return;
      this.#channels.delete(channel);
      this.#send({ type: "unlisten", id: 0, channel });
    };
  }

  acknowledge(subscription, token) {
    const id = this.#numberOf(subscription);
    if (!this.#isOpen || id === undefined || subscription.state !== "live")
      return Promise.reject(new DisconnectedError("the subscription is not live, so nothing is acknowledged"));
    const waiting = this.#acks.get(id) ?? [];
    this.#acks.set(id, waiting);
    this.#send(token ? { type: "ack", id, token } : { type: "ack", id });
    return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
  }

  ask(message) {
    if (!this.#isOpen) return Promise.reject(new DisconnectedError("there is no WebSocket"));
    const id = ++this.#numbers;
    this.#send({ ...message, id });
    return new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }));
  }

  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const subscription of [...this.#subscriptions.values()]) subscription.close();
    globalThis.removeEventListener?.("online", this.#wakeUp);
    globalThis.document?.removeEventListener("visibilitychange", this.#wakeUp);
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#retry);
    this.#socket?.close();
    this.#client.become("closed");
  }

  get #isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  #numberOf(subscription) {
    for (const [number, each] of this.#subscriptions) if (each === subscription) return number;
    return undefined;
  }

  // ---- the WebSocket

  #connect() {
    this.#retry = null;
    if (this.#isClosed) return;
    const protocols = ["millstream.v1"];
    if (this.#key) protocols.push(`millstream.key.${this.#key}`);
    let socket;
    try {
      socket = new WebSocket(`${this.#client.url.replace(/^http/, "ws")}/v1/ws`, protocols);
    } catch (error) {
      this.#refuse(new MillstreamError({ code: "BAD_REQUEST", message: error.message }));
      return;
    }
    this.#socket = socket;
    let wasOpen = false;
    socket.onopen = () => {
      wasOpen = true;
      this.#opened();
    };
    socket.onmessage = ({ data }) => socket === this.#socket && this.#take(parse(data));
    socket.onclose = () => socket === this.#socket && this.#lost(wasOpen);
  }

  #opened() {
    this.#failures = 0;
    this.#since = this.#heard = performance.now();
    this.#client.become("open");
    for (const [number, subscription] of this.#subscriptions) this.#open(number, subscription);
    for (const channel of this.#channels.keys()) this.#send({ type: "listen", id: 0, channel });
  }

  #open(number, subscription) {
    this.#send({ type: "subscribe", id: number, ...subscription.opening() });
  }

  #send(message) {
    if (this.#isOpen) this.#socket.send(JSON.stringify(message));
  }

  #take(frame) {
    this.#heard = performance.now();
    if (frame.type === "notification") {
      for (const call of this.#channels.get(frame.channel) ?? []) call(frame.payload, frame);
      return;
    }
    const answer = this.#answers.get(frame.id);
    if (answer) {
      this.#answers.delete(frame.id);
      if (frame.type === "error") answer.reject(new MillstreamError(frame.error));
      else answer.resolve(frame);
      return;
    }
    if (frame.type === "error" || frame.of === "ack") {
      const ack = this.#acks.get(frame.id)?.shift();
      if (ack && frame.type === "error") ack.reject(new MillstreamError(frame.error));
      else ack?.resolve();
      if (ack) return;
    }
    const subscription = this.#subscriptions.get(frame.id);
    if (!subscription || frame.type === "ok") return;
    if (frame.type === "end") this.#break(); // the server stops; another one will go on
    else this.#hand(subscription, frame);
  }

  #hand(subscription, frame) {
    try {
      subscription.take(frame);
    } catch (error) {
      if (!(error instanceof MillstreamError)) throw error; // of the caller's own function
      this.#break();
    }
  }

  #break() {
    const socket = this.#socket;
    this.#lost(true);
    socket.close();
  }

  #lost(wasOpen) {
    this.#socket = null;
    // A server that ends connections at once is not asked in a tight loop.
    if (performance.now() - this.#since > LASTING) this.#delays = delays();
    this.#since = Infinity;
    for (const subscription of this.#subscriptions.values()) subscription.away();
    for (const { reject } of [...this.#answers.values(), ...[...this.#acks.values()].flat()])
      reject(new DisconnectedError("the connection broke before the answer came"));
    this.#answers.clear();
    this.#acks.clear();
    if (this.#isClosed) return;
    this.#client.become("away");
    if (wasOpen) this.#later(() => this.#connect());
    else this.#probe();
  }

  /** The WebSocket was not opened, and a browser does not say why: ask over HTTP. */
  async #probe() {
    this.#retry = null;
    let answer;
    try {
      answer = await this.#client.fetch("/v1/sql", { method: "POST", body: '{"sql": "SHOW TABLES LIKE \'\'"}' });
    } catch {
      this.#later(() => this.#connect());
      return;
    }
    if (this.#isClosed) return;
    if (answer.status === 401 || answer.status === 403) this.#refuse(refusal(answer, await answer.text()));
    else if (answer.ok && ++this.#failures >= FAILURES) this.#useEvents();
    else this.#later(() => this.#connect());
  }

  #refuse(error) {
    for (const subscription of [...this.#subscriptions.values()]) subscription.fail(error);
    this.#client.become("refused", error);
  }

  #later(call) {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(call, this.#delays.next().value);
  }

  #retryNow() {
    clearTimeout(this.#retry);
    this.#connect();
  }

  /** A connection on which nothing comes may be gone: ask for something. */
  #watch() {
    if (!this.#isOpen) return;
    const silent = performance.now() - this.#heard;
    if (silent > 2 * SILENCE) this.#break();
    else if (silent > SILENCE) this.#send({ type: "unlisten", id: 0, channel: "" });
  }

  // ---- Server-Sent Events, where there is no WebSocket

  #useEvents() {
    this.#usesEvents = true;
    this.#client.become("open");
    for (const [number, subscription] of this.#subscriptions) this.#follow(number, subscription);
  }

  async #follow(number, subscription) {
    let pauses = delays();
    while (this.#subscriptions.has(number)) {
      const ending = new AbortController();
      this.#streams.set(number, ending);
      try {
        const began = performance.now();
        await this.#events(subscription, ending.signal);
        if (performance.now() - began > LASTING) pauses = delays();
      } catch (error) {
        if (error instanceof MillstreamError && !PASSING.has(error.code)) {
          subscription.fail(error);
          if (error.code === "UNAUTHENTICATED") this.#refuse(error);
          return;
        }
      }
      subscription.away();
      if (!this.#subscriptions.has(number)) return;
      this.#client.become("away");
      await sleep(pauses.next().value);
    }
  }

  async #events(subscription, signal) {
    const { params, ...options } = subscription.opening();
    const query = new URLSearchParams(options);
    if (params) query.set("params", JSON.stringify(params));
    const answer = await this.#client.fetch(`/v1/subscribe?${query}`, { signal });
    if (!answer.ok) throw refusal(answer, await answer.text());
    this.#client.become("open");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      await subscription.room();
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const frame = parse(event.slice(event.indexOf("\ndata: ") + 7));
        if (frame.type === "end") return;
        subscription.take(frame);
      }
    }
  }
}
