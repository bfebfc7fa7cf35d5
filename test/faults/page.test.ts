import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { renderFaultTables } from '../../scripts/fault-tables.ts';

it('docs/reliability.md and docs/outages.md match the fault tables (npx node scripts/fault-tables.ts writes them)', () => {
  const pages = renderFaultTables();
  assert.equal(pages.size, 2);
  for (const [page, text] of pages) {
    assert.equal(readFileSync(join(import.meta.dirname, '../..', page), 'utf8'), text);
  }
});
