// What goes to one person: in order, and each again until the messenger has taken it. While it takes
// nothing, so much waits and no more; the person is told how many got lost.

const PAUSE_MAX_MS = 10_000;
const WAITING_MAX = 1_000_000; // characters

export class Outbox {
  #post;
  #onEmpty;
  #most;
  #waiting = [];
  #size = 0;
  #lost = 0;

  // post(text) gives one to the messenger: a promise of fetch's answer. onEmpty(): nothing waits any more,
  // the next text may have an outbox of its own.
  constructor(post, onEmpty = () => {}, most = WAITING_MAX) {
    this.#post = post;
    this.#onEmpty = onEmpty;
    this.#most = most;
  }

  add(text) {
    if (this.#waiting.length > 0 && this.#size + text.length > this.#most) {
      this.#lost++;
      return;
    }
    this.#size += text.length;
    if (this.#waiting.push(text) === 1) this.#run();
  }

  async #run() {
    while (this.#waiting.length > 0) {
      await this.#deliver(this.#waiting[0]);
      this.#size -= this.#waiting.shift().length;
      if (this.#waiting.length === 0 && this.#lost > 0) {
        const told = `(${this.#lost} messages got lost: too much waited)`;
        this.#lost = 0;
        this.#size += told.length;
        this.#waiting.push(told);
      }
    }
    this.#onEmpty();
  }

  async #deliver(text) {
    for (let pauseMs = 100; !(await this.#taken(text)); pauseMs = Math.min(PAUSE_MAX_MS, pauseMs * 2)) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random())));
    }
  }

  // Also true when it never will be: the next one must not wait for ever. Rejects never: a rejection
  // that nobody handles ends the process.
  async #taken(text) {
    try {
      const { ok, status } = await this.#post(text);
      if (!ok) console.error(`messenger: it answers ${status}`);
      return ok || (status < 500 && status !== 408 && status !== 429);
    } catch (fault) {
      console.error(`messenger: ${fault.message}`);
      return false;
    }
  }
}
