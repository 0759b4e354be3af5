// A person's talk with an agent: a sandbox and a lease from the gateway, then straight to the door.

import WebSocket from "ws";

const AGAIN_MS = 300; // a door that is not live yet, or a connection that broke
const WAITING_MAX = 1_000_000; // characters that the agent has not been given yet

export class Talk {
  #waiting = []; // said, and not at the door yet
  #ended = false;

  constructor({ gateway, userId, chatId, onText, onEnd }) {
    Object.assign(this, { gateway, userId, chatId, onText, onEnd });
    this.#begin();
  }

  say(text) {
    // A door that is closing drops without a word what it is given.
    const open = this.ready && this.door.readyState === WebSocket.OPEN;
    const before = open ? this.door.bufferedAmount : this.#waiting.reduce((n, t) => n + t.length, 0);
    if (before > 0 && before + text.length > WAITING_MAX) this.onText("(not passed on: the agent does not listen)");
    else if (open) this.door.send(text);
    else this.#waiting.push(text);
  }

  async #begin() {
    try {
      await this.gateway.call("chat.create", { user_id: this.userId, chat_id: this.chatId });
      const { grant } = await this.gateway.call("sandbox.open", { chat_id: this.chatId, lease: {} });
      this.#take(grant);
      this.#dial();
    } catch (fault) {
      this.end(fault.message);
    }
  }

  #take(grant) {
    if (this.#ended) return;
    this.grant = grant;
    this.leaseId = grant.lease.lease_id;
    const inMs = new Date(grant.renew_after) - Date.now();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#renew(), Math.max(0, inMs));
  }

  // The connection stays: only its end moves. The new token is for the next connection.
  async #renew() {
    try {
      this.#take(await this.gateway.call("lease.renew", { lease_id: this.leaseId }));
    } catch (fault) {
      if (fault.code === undefined) this.timer = setTimeout(() => this.#renew(), 1000);
      else this.end(fault.message); // its time is over, or it was revoked
    }
  }

  #dial() {
    if (this.#ended) return;
    const { url, protocol, ca_pem: ca } = this.grant.endpoint;
    this.ready = false;
    this.door = new WebSocket(url, [protocol], {
      headers: { Authorization: `Bearer ${this.grant.token}` },
      ca: ca ?? undefined,
    });
    this.door.on("message", (data, isBinary) => !isBinary && this.#heard(data.toString()));
    this.door.on("error", (fault) => console.error(`door: ${fault.message}`));
    this.door.on("close", (code) => this.#closed(code));
  }

  #heard(text) {
    if (this.ready) {
      this.onText(text);
      return;
    }
    // The door speaks once; everything behind that is the agent's.
    if (JSON.parse(text).type !== "ready") return;
    this.ready = true;
    for (const said of this.#waiting.splice(0)) this.door.send(said);
  }

  #closed(code) {
    this.ready = false;
    if (this.#ended) return;
    if (code === 4503 || code === 1006 || code === 1013) {
      setTimeout(() => this.#dial(), AGAIN_MS * (0.5 + Math.random()));
    } else {
      this.end(`the door has closed with ${code}`);
    }
  }

  // The next thing the person says begins a new one.
  end(why) {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.timer);
    this.door?.close();
    this.onEnd(why);
  }
}
