import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseStoreUrl } from '../../lib/config/limits-store.ts';
import { parsed, refused } from '../support/doors/config.ts';

const PLAIN = {
  host: 'store',
  port: 6379,
  tls: false,
  username: undefined,
  password: undefined,
  database: 0,
};

describe('the URL of --limits-store', () => {
  const accepted: [url: string, address: object][] = [
    ['redis://store', {}],
    ['redis://store/', {}],
    ['REDIS://store:6380', { port: 6380 }],
    ['rediss://store', { tls: true }],
    ['redis://10.0.0.7/15', { host: '10.0.0.7', database: 15 }],
    ['redis://[2001:db8::1]:7000', { host: '2001:db8::1', port: 7000 }],
    ['redis://:secret@store', { password: 'secret' }],
    ['redis://me:a%25b%40c%3Ad%2Fe%3Ff%23@store', { username: 'me', password: 'a%b@c:d/e?f#' }],
    ['redis://me@store', { username: 'me' }],
  ];
  for (const [url, more] of accepted)
    it(`may be ${url}`, () => assert.deepEqual(parseStoreUrl(url, 'the URL'), { ...PLAIN, ...more }));

  const rejected: [what: string, url: string][] = [
    ['another scheme', 'http://:swordfish@store'],
    ['no scheme', ':swordfish@store'],
    ['no host', 'redis://'],
    ['a password and no host', 'redis://:swordfish@'],
    ['a slash in the password', 'redis://:swordfish/3@store'],
    ['a number sign in the password', 'redis://:swordfish#3@store'],
    ['a percent sign in the password', 'redis://:swordfish%@store'],
    ['a port beyond all', 'redis://:swordfish@store:65536'],
    ['port 0', 'redis://:swordfish@store:0'],
    ['a path', 'redis://:swordfish@store/one'],
    ['a query', 'redis://:swordfish@store/1?a=swordfish'],
    ['a blank', 'redis://:swordfish@st ore'],
  ];
  for (const [what, url] of rejected) {
    it(`is refused with ${what}, and the error quotes nothing of it`, () => {
      const argv = ['--clients=c', `--limits-store=${url}`];
      const literal = refused(() => parsed(argv), ['--limits-store wants redis://', '%25']);
      const files = { 'store.url': url };
      const inFile = refused(
        () => parsed(['--clients=c', '--limits-store=@store.url'], files),
        ['the file "store.url" of --limits-store wants redis://'],
      );
      for (const message of [literal, inFile]) assert.doesNotMatch(message, /swordfish/);
    });
  }
});
