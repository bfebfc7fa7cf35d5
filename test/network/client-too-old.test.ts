/** Which plain errors ask for a newer client. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { clientTooOld } from '../../lib/network/failures.ts';

const told = (text: string) => clientTooOld(Buffer.from(text), 'v1.40.0');
const padded = (bytes: number): string => 'minimum client version v1.46'.padEnd(bytes, ' ');

const ASKS: readonly (readonly [text: string, version: string])[] = [
  ['minimum version v1.2', '1.2'],
  ['minimum client version v1.2.3', '1.2.3'],
  ['{"error":{"message":"Minimum Client Version v1.46.","type":""}}', '1.46'],
  ['client v1.40.0 is below the minimum client version v1.46.0, see the page', '1.46.0'],
  [padded(4096), '1.46'],
];

const ASKS_NOTHING: readonly string[] = [
  '',
  'minimum version 1.2',
  'minimum version v1',
  'minimum version v1.2.3.4',
  'minimum version v1.2evil',
  'minimum version v11111.2',
  'minimum server version v1.2',
  'a minimum client  version v1.2',
  padded(4097),
];

describe('an unencrypted error of the service', () => {
  for (const [text, version] of ASKS) {
    it(`asks for a newer client: ${text.trim()} (${text.length} bytes)`, () => {
      const error = told(text);
      assert.equal(error?.code, 'client_too_old');
      assert.equal(
        error?.message,
        `the service says, in a text that nothing authenticates, that it wants a client of version ${version} or newer; this one announces v1.40.0`,
      );
    });
  }

  for (const text of ASKS_NOTHING) {
    it(`asks for no newer client: ${text.trim() || 'an empty one'} (${text.length} bytes)`, () =>
      assert.equal(told(text), undefined));
  }
});
