// What goes to one person: in order, and each again until the messenger has taken it.

const PAUSE_MAX_MS = 10_000;

export class Outbox {
  #post;
  #last = Promise.resolve();

  // post(text) gives one to the messenger: a promise of fetch's answer.
  constructor(post) {
    this.#post = post;
  }

  add(text) {
    this.#last = this.#last.then(() => this.#deliver(text));
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
