/**
 * The exchanges of test/support/doors/planned-exchanges.ts, byte for byte. The record beside this file does
 * not say what is right: it proves that a change that should change nothing changes nothing. After a change
 * that should, `npm run record`, and read the diff of recorded-exchanges.txt.
 *
 * Neither this file nor planned-exchanges.ts, recording.ts and fixed-randomness.ts import anything of lib.
 * Fixtures that all tests of the gateway use do, and are what to follow where files move:
 * test/support/doors/gateway.ts puts the gateway together; gateway-fixture.ts and left-behind.ts name types
 * of it; exchange-fixture.ts imports the cipher, and tls-authority.ts certificates of the simulator.
 */
import '../support/remote/fixed-randomness.ts';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it, mock } from 'node:test';
import { PLANNED } from '../support/doors/planned-exchanges.ts';
import { record } from '../support/doors/recording.ts';

const FILE = join(import.meta.dirname, 'recorded-exchanges.txt');
const RECORDING = process.env['RECORD_EXCHANGES'] === '1';
const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);
const TITLE = '=== ';

/** Sections by title. */
function readRecord(): Map<string, string> {
  const [, ...sections] = `\n${readFileSync(FILE, 'utf8')}`.split(`\n${TITLE}`);
  return new Map(
    sections.map((section) => {
      const end = section.indexOf('\n');
      return [section.slice(0, end), section.slice(end + 1).trimEnd()];
    }),
  );
}

describe('the record of exchanges', () => {
  const recorded = RECORDING ? new Map<string, string>() : readRecord();
  before(() => mock.timers.enable({ apis: ['Date'], now: NOW }));
  after(() => {
    mock.timers.reset();
    if (!RECORDING) return;
    writeFileSync(FILE, [...recorded].map(([name, text]) => `${TITLE}${name}\n${text}\n\n`).join(''));
  });

  for (const exchange of PLANNED) {
    it(`equals, byte for byte, what upstream and application see now in the exchange "${exchange.name}"`, {
      timeout: 60_000,
    }, async () => {
      const text = await record(exchange);
      if (RECORDING) recorded.set(exchange.name, text);
      else assert.equal(text, recorded.get(exchange.name));
    });
  }

  it('has exactly the planned exchanges, in their order', () => {
    const planned = PLANNED.map(({ name }) => name);
    assert.deepEqual([...recorded.keys()], planned);
  });
});
