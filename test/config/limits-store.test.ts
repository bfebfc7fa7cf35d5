import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parsed, refused } from '../support/doors/config.ts';

const storeOf = (text: string, files = {}): string | undefined =>
  parsed(['--clients=c', `--limits-store=${text}`], files).config.limitsStore;

describe('the URL of --limits-store', () => {
  for (const url of [
    ...['redis://store', 'redis://store/', 'REDIS://store:6380', 'rediss://store', 'redis://10.0.0.7/15'],
    ...['redis://[2001:db8::1]:7000', 'redis://:secret@store', 'redis://me@store'],
    'redis://me:a%25b%40c%3Ad%2Fe%3Ff%23@store',
  ])
    it(`may be ${url}, and may stand in a file`, () => {
      assert.equal(storeOf(url), url);
      assert.equal(storeOf('@store.url', { 'store.url': ` ${url}\n` }), url);
    });

  const rejected: [what: string, url: string][] = [
    ['another scheme', 'http://:swordfish@store'],
    ['a password and no host', 'redis://:swordfish@'],
    ['a slash in the password', 'redis://:swordfish/3@store'],
    ['a number sign in the password', 'redis://:swordfish#3@store'],
    ['a percent sign in the password', 'redis://:swordfish%@store'],
    ['port 0', 'redis://:swordfish@store:0'],
    ['a path', 'redis://:swordfish@store/one'],
    ['a query', 'redis://:swordfish@store/1?a=swordfish'],
    ['a blank', 'redis://:swordfish@st ore'],
  ];
  for (const [what, url] of rejected) {
    it(`is refused with ${what}, and the error quotes nothing of it`, () => {
      const literal = refused(() => storeOf(url), ['--limits-store wants redis://']);
      const inFile = refused(
        () => storeOf('@store.url', { 'store.url': url }),
        ['"store.url" of --limits-store'],
      );
      assert.doesNotMatch(literal + inFile, /swordfish/);
    });
  }
});
