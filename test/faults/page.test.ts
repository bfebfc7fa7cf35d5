import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { renderReliability } from '../../scripts/reliability-page.ts';

it('docs/reliability.md is what the tables say (npx node scripts/reliability-page.ts writes it)', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/reliability.md'), 'utf8');
  assert.equal(page, renderReliability());
});
