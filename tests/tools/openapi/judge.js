// Judges an OpenAPI document by @redocly/openapi-core's recommended rules, and answers of the
// daemon by the document's schemas. One fault a line; none: exit status 0.
//
//   node judge.js PACKAGES DOCUMENT.json ANSWERS.json     answers: [{what, schema, value}]
'use strict';
const fs = require('fs');
const path = require('path');
const { createRequire } = require('module');

const [packages, document, answers] = process.argv.slice(2).map((name) => path.resolve(name));
const load = createRequire(packages + path.sep);
const { lint, createConfig } = load('@redocly/openapi-core');
const Ajv = load('@redocly/ajv/dist/2020').default;

async function lintFaults() {
  const config = await createConfig({ extends: ['recommended'] });
  const problems = await lint({ ref: document, config });
  return problems.map((p) => `${p.severity} ${p.ruleId}: ${p.message} (${p.location.map((l) => l.pointer)})`);
}

function answerFaults() {
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema(JSON.parse(fs.readFileSync(document, 'utf8')), 'doc');
  return JSON.parse(fs.readFileSync(answers, 'utf8')).flatMap(({ what, schema, value }) => {
    const check = ajv.getSchema(`doc${schema}`);
    if (!check) return [`${what}: the document has no ${schema}`];
    return check(value) ? [] : check.errors.map((e) => `${what}: ${e.instancePath} ${e.message}`);
  });
}

lintFaults().then((faults) => {
  const all = [...faults, ...answerFaults()];
  for (const fault of all) console.log(fault);
  process.exitCode = all.length ? 1 : 0;
});
