// One WebSocket to the gateway: calls, events, and a new connection whenever the old one ends.

import WebSocket from "ws";

const CALL_MS = 60_000;
const SILENT_MS = 50_000; // the gateway pings every 20 s

export class Refused extends Error {
  constructor(problem) {
    super(`${problem.code}: ${problem.detail}`);
    this.code = problem.code;
  }
}

export class Gateway {
  #calls = new Map();
  #lastId = 0;
  #pauseMs = 0;

  // onEvent(event) is called for each event, in order; `since` is the seq of the last one handled in
  // an earlier life, undefined at the very first start.
  constructor({ url, key, since, onEvent, onUp }) {
    Object.assign(this, { url, key, since, onEvent, onUp });
    this.#connect();
  }

  #connect() {
    const socket = new WebSocket(`${this.url.replace(/^http/, "ws")}/api/v1/ws`, ["leasehold.v1"], {
      headers: { Authorization: `Bearer ${this.key}` },
    });
    this.socket = socket;
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => socket.terminate(), SILENT_MS);
    };
    alive();
    socket.on("open", () => this.#opened());
    socket.on("ping", alive);
    socket.on("message", (text) => (alive(), this.#message(JSON.parse(text))));
    socket.on("error", (fault) => console.error(`gateway: ${fault.message}`));
    socket.on("close", (code) => (clearTimeout(watchdog), this.#closed(code)));
  }

  async #opened() {
    try {
      const { seq } = await this.call("subscribe", { topics: ["all"], since: this.since });
      this.since ??= seq;
      this.#pauseMs = 0;
      this.onUp();
    } catch (fault) {
      console.error(`subscribe: ${fault.message}`);
      this.socket.close();
    }
  }

  #message(message) {
    if (message.event === undefined) {
      const call = this.#calls.get(message.id);
      this.#calls.delete(message.id);
      if (message.ok) call?.resolve(message.result);
      else call?.reject(new Refused(message.error));
    } else if (message.event === "gap") {
      // What happened before `oldest` is not known any more: look at what is there instead.
      this.since = message.data.oldest - 1;
      this.onEvent(message);
    } else {
      this.onEvent(message);
      this.since = message.seq; // only now: an event that was not handled comes again
    }
  }

  #closed(code) {
    for (const call of this.#calls.values()) call.reject(new Error("the connection has ended"));
    this.#calls.clear();
    if (code === 4401) {
      console.error("the key does not hold");
      process.exit(1);
    }
    this.#pauseMs = Math.min(10_000, this.#pauseMs * 2 + 100);
    setTimeout(() => this.#connect(), this.#pauseMs * (0.5 + Math.random()));
  }

  call(op, args) {
    const id = String(++this.#lastId);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#calls.delete(id);
        reject(new Error(`${op}: no answer`));
      }, CALL_MS);
      const settle = (then) => (value) => (clearTimeout(timer), then(value));
      this.#calls.set(id, { resolve: settle(resolve), reject: settle(reject) });
      this.socket.send(JSON.stringify({ id, op, args }), (fault) => fault && reject(fault));
    });
  }
}
