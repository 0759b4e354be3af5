// A chat bot: what people write to it in a messenger goes to an agent of their own, and back.
//
//     LEASEHOLD_URL=… LEASEHOLD_KEY=… MESSENGER_URL=… node bot.mjs STATE_FILE

import { createHash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";

import { Gateway } from "./gateway.mjs";
import { Outbox } from "./outbox.mjs";
import { Talk } from "./talk.mjs";

const MESSENGER_MS = 60_000;

const { LEASEHOLD_URL: url, LEASEHOLD_KEY: key, MESSENGER_URL: messenger } = process.env;
const stateFile = process.argv[2];
if (!url || !key || !messenger || !stateFile) {
  console.error("LEASEHOLD_URL, LEASEHOLD_KEY, MESSENGER_URL and a state file are needed");
  process.exit(2);
}

// --- what survives us: how far we have come, in the log of events and in the messenger ------------

const state = { since: undefined, said: 0 };
try {
  Object.assign(state, JSON.parse(readFileSync(stateFile, "utf8")));
} catch (fault) {
  if (fault.code !== "ENOENT") throw fault;
}

function save() {
  writeFileSync(`${stateFile}.new`, JSON.stringify(state));
  renameSync(`${stateFile}.new`, stateFile);
}

// --- people ---------------------------------------------------------------------------------------

// The same person always has the same user and chat, without a table.
function idOf(kind, person) {
  const h = createHash("sha256").update(`${kind}:${person}`).digest("hex");
  return `${h.slice(0, 8)}-${h.slice(8, 12)}-8${h.slice(13, 16)}-a${h.slice(17, 20)}-${h.slice(20, 32)}`;
}

const talks = new Map(); // by person, both
const outboxes = new Map();

function post(person, text) {
  return fetch(`${messenger}/send`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ person, text }),
    signal: AbortSignal.timeout(MESSENGER_MS),
  });
}

function send(person, text) {
  if (!outboxes.has(person)) {
    outboxes.set(person, new Outbox((text) => post(person, text), () => outboxes.delete(person)));
  }
  outboxes.get(person).add(text);
}

function talkOf(person) {
  let talk = talks.get(person);
  if (talk === undefined) {
    talk = new Talk({
      gateway,
      userId: idOf("user", person),
      chatId: idOf("chat", person),
      onText: (text) => send(person, text),
      onEnd: (why) => {
        if (talks.get(person) === talk) talks.delete(person);
        send(person, `(the session has ended: ${why})`);
      },
    });
    talks.set(person, talk);
  }
  return talk;
}

// "/save NAME TEXT": a file in the chat, where the agent finds it, too. Bodies go over REST.
async function saveFile(person, name, text) {
  const chatId = idOf("chat", person);
  await gateway.call("chat.create", { user_id: idOf("user", person), chat_id: chatId });
  const answer = await fetch(`${url}/api/v1/chats/${chatId}/files/${encodeURIComponent(name)}`, {
    method: "PUT",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "text/plain" },
    body: text,
  });
  const file = await answer.json();
  send(person, answer.ok ? `(saved ${file.name}, ${file.size_bytes} bytes)` : `(${file.detail})`);
}

function heard(person, text) {
  const [, name, body] = /^\/save (\S+) (.*)$/s.exec(text) ?? [];
  if (name === undefined) talkOf(person).say(text);
  else saveFile(person, name, body).catch((fault) => send(person, `(${fault.message})`));
}

// --- the gateway ----------------------------------------------------------------------------------

// The door closes what it is told to close; the event says why, also when the door is out of reach.
function onEvent({ event, seq, data }) {
  if (event === "lease.revoked" || event === "lease.expired") {
    for (const talk of talks.values()) if (talk.leaseId === data.lease_id) talk.end(data.reason);
  }
  if (seq !== undefined) {
    state.since = seq;
    save();
  }
}

let listening = false;
const gateway = new Gateway({
  url,
  key,
  since: state.since,
  onEvent,
  onUp: () => {
    console.log(`up, behind event ${gateway.since}`);
    if (!listening) listen();
    listening = true;
  },
});

// --- the messenger --------------------------------------------------------------------------------

async function listen() {
  for (;;) {
    try {
      const answer = await fetch(`${messenger}/updates?after=${state.said}`, {
        signal: AbortSignal.timeout(MESSENGER_MS),
      });
      for (const { n, person, text } of await answer.json()) {
        heard(person, text);
        state.said = n;
        save();
      }
    } catch (fault) {
      console.error(`messenger: ${fault.message}`);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}
