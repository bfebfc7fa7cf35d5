/** The schema of GET /verification (docs/verification.schema.json), as a test holds documents to it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { ROOT } from '../processes/tools.ts';

const text = readFileSync(join(ROOT, 'docs/verification.schema.json'), 'utf8');

/**
 * Stricter than the schema itself, which lets readers meet members to come: a member that it does not
 * describe is wrong.
 */
const closed = JSON.parse(text, (_, part) =>
  part?.properties ? { ...part, additionalProperties: false } : part,
);
const validate = new Ajv2020({ allErrors: true, allowUnionTypes: true }).compile(closed);

/** What is wrong with a document, each as `PATH what`; empty if it is valid. */
export function wrongInVerification(document: unknown): string[] {
  validate(document);
  return (validate.errors ?? []).map(
    ({ instancePath, message, params }) => `${instancePath || '/'} ${message} ${JSON.stringify(params)}`,
  );
}
