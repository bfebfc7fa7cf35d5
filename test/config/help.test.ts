import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { FLAGS, LISTED } from '../../lib/config/flags.ts';
import { renderHelp } from '../../lib/config/help.ts';
import { renderFlagTable } from '../../scripts/flag-table.ts';

describe('--help', () => {
  const help = renderHelp();

  it('fits a terminal of 100 columns', () => {
    assert.deepEqual(
      help.split('\n').filter((line) => [...line].length > 100),
      [],
    );
  });
  for (const flag of LISTED) {
    it(`lists --${flag.name} with its default`, () => {
      const start = help.search(new RegExp(`^(?:  -., |      )--${flag.name}(?: |$)`, 'm'));
      assert.notEqual(start, -1);
      const entry = help.slice(start).split(/\n(?= {2}-| {6}-|\n)/)[0] as string;
      const words = entry.replace(/\s+/g, ' ');
      assert.ok(words.includes(flag.help.slice(0, 30)), words);
      if (flag.default !== undefined && flag.default !== 'false')
        assert.ok(words.includes(`(default ${flag.default})`), words);
    });
  }
  it('names no hidden and no older flag', () => {
    const unlisted = FLAGS.flatMap((flag) => [
      ...(flag.hidden ? [flag.name] : []),
      ...(flag.aliases ?? []).map(({ name }) => name),
    ]);
    assert.deepEqual(
      unlisted.filter((name) => help.includes(`--${name}`)),
      [],
    );
  });
});

describe('the flag table of the README', () => {
  const table = renderFlagTable();

  it('is current', () => {
    const readme = readFileSync(join(import.meta.dirname, '../../README.md'), 'utf8');
    const shown = /<!-- flags:begin -->\n([\s\S]*)<!-- flags:end -->/.exec(readme)?.[1];
    assert.ok(shown !== undefined, 'README.md has no markers for the flag table');
    assert.equal(shown.trim(), table.trim(), 'run: node scripts/flag-table.ts');
  });
  it('has one row per listed flag, each of four cells', () => {
    const rows = table.trim().split('\n').slice(2);
    assert.equal(rows.length, LISTED.length);
    for (const row of rows) assert.equal(row.split(/(?<!\\)\|/).length, 6, row);
  });
});
