import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { renderPages } from '../../scripts/reliability-page.ts';

describe('the reliability pages', () => {
  for (const [path, text] of renderPages()) {
    it(`${path} is what the tables say (node scripts/reliability-page.ts writes it)`, () => {
      assert.equal(readFileSync(join(import.meta.dirname, '../..', path), 'utf8'), text);
    });
  }
});
