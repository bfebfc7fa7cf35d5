/** Writes the table of error codes in docs/operations.md from lib/errors.ts. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Blame, ERRORS } from '../lib/errors.ts';
import { replaceSection } from './marked-section.ts';

const PAGE = join(import.meta.dirname, '../docs/operations.md');

const WHOSE: Readonly<Record<Blame, string>> = {
  client: 'the request',
  operator: 'the set-up',
  upstream: 'the service',
  network: 'the network',
  attestation: 'the verification',
  internal: 'this program',
};

/** The page as it should be. */
export function renderOperations(): string {
  const rows = Object.entries(ERRORS).map(
    ([code, { status, blame, remedy }]) => `| \`${code}\` | ${status || '–'} | ${WHOSE[blame]} | ${remedy} |`,
  );
  const table = ['| Code | Status | Lies with | What to do |', '| --- | --- | --- | --- |', ...rows].join(
    '\n',
  );
  return replaceSection(readFileSync(PAGE, 'utf8'), 'errors', table);
}

if (import.meta.main) writeFileSync(PAGE, renderOperations());
