// npm's jose on lease tokens. Reads one JSON object from the input, writes one.
//
//   node second_opinion.js PACKAGES
//   {"do": "verify", "now": seconds, "jwk": {…}, "tokens": [hex, …]}
//      → [{"ok": true, "header": {…}, "claims": {…}} | {"ok": false, "code": "ERR_…"}, …]
//   {"do": "sign", "jwk": private, "tokens": [{"header": {…}, "payload": text}, …]}  → [token, …]
'use strict';
const fs = require('fs');
const path = require('path');
const { createRequire } = require('module');

const load = createRequire(path.resolve(process.argv[2]) + path.sep);
const jose = load('jose');

async function verify({ now, jwk, tokens }) {
  const key = await jose.importJWK(jwk, 'ES256');
  const options = {
    algorithms: ['ES256'],
    typ: 'lease+jwt',
    currentDate: new Date(now * 1000),
    clockTolerance: 0,
    requiredClaims: ['iss', 'aud', 'sub', 'jti', 'iat', 'nbf', 'exp'],
  };
  const opinions = [];
  for (const hex of tokens) {
    try {
      const token = Buffer.from(hex, 'hex').toString('latin1');
      const { payload, protectedHeader } = await jose.jwtVerify(token, key, options);
      opinions.push({ ok: true, header: protectedHeader, claims: payload });
    } catch (error) {
      opinions.push({ ok: false, code: error.code || error.name });
    }
  }
  return opinions;
}

async function sign({ jwk, tokens }) {
  const key = await jose.importJWK(jwk, 'ES256');
  const encoder = new TextEncoder();
  return Promise.all(
    tokens.map(({ header, payload }) =>
      new jose.CompactSign(encoder.encode(payload)).setProtectedHeader(header).sign(key),
    ),
  );
}

const asked = JSON.parse(fs.readFileSync(0, 'utf8'));
(asked.do === 'sign' ? sign : verify)(asked).then((answer) => console.log(JSON.stringify(answer)));
