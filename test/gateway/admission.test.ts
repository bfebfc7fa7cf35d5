import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkHead } from '../../lib/gateway/admission.ts';
import { refused } from '../support/doors/config.ts';

describe('the head of a request', () => {
  it('may have each header that decides something once, and the error names the header and no value', () => {
    const once = ['Host', 'Authorization', 'X-Api-Key', 'Content-Length', 'Transfer-Encoding'];
    for (const name of [...once, 'Content-Type', 'Origin', 'Sec-Fetch-Site']) {
      const raw = [name, 'CANARY1', 'Accept', '*/*', name.toLowerCase(), 'CANARY2'];
      const message = refused(() => checkHead(raw), [name.toLowerCase()], 'ambiguous_header');
      assert.ok(!message.includes('CANARY'));
      checkHead([name, 'once', 'Accept', 'a', 'Accept', 'b']);
    }
  });

  it('may have 256 headers, but not 257', () => {
    const many = (count: number): string[] => Array.from({ length: count }, (_, i) => [`x-${i}`, 'v']).flat();
    checkHead(many(256));
    refused(() => checkHead(many(257)), ['256'], 'too_many_headers');
  });

  it('must have a Host in HTTP/1.1, but not in HTTP/1.0', () => {
    checkHead(['Accept', '*/*'], '1.0');
    checkHead(['hOsT', 'localhost'], '1.1');
    refused(() => checkHead(['Accept', '*/*'], '1.1'), ['missing'], 'invalid_host');
  });

  it('has one host name or address as its Host, with a port or without, which no error quotes (RFC 9112 3.2)', () => {
    for (const host of [
      ...['localhost', 'localhost:8080', 'LOCALHOST:', 'a.b-c_d~e.:1', 'xn--bcher-kva.example'],
      ...['127.0.0.1:65535', '[::1]', '[::1]:8080', '[FE80::1%25eth0]:1', '[::ffff:1.2.3.4]'],
    ])
      checkHead(['Host', host], '1.1');
    for (const host of [
      ...['', ':8080', 'a,b', 'localhost:8080, evil.example', 'user@localhost', 'local host', 'localhost\t'],
      ...[
        'localhost/v1',
        'http://localhost',
        'localhost?x',
        'a#b',
        'a\\b',
        'localhost:8080:1',
        'localhost:x',
      ],
      ...['localhost:123456', '[::1', '::1', '[]', '[::1]x', 'b\xfccher'],
    ]) {
      const words = refused(() => checkHead(['Host', host]), ['host'], 'invalid_host');
      assert.equal(words, 'the header host is not one host name with an optional port');
    }
  });
});
