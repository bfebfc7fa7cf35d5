import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeRuntime, runtimeDefect } from '../../lib/observe/runtime-floor.ts';
import { RUNTIME_VERSION } from '../../scripts/node-runtime.ts';

const PLAIN = { tls: false };
const TLS = { tls: true };
const KEPT_OPEN = ['CVE-2026-105481'];

/** The fixes that a sentence names. */
const named = (sentence: string | undefined): string[] => sentence?.match(/CVE-[0-9-]+/g) ?? [];

describe('the check of the Node that runs the program', () => {
  for (const [version, use, fixes] of [
    ['24.16.0', PLAIN, ['CVE-2026-48931', 'CVE-2026-105481']],
    ['24.22.0', PLAIN, KEPT_OPEN],
    ['24.22.1', PLAIN, []],
    ['24.22.1', TLS, ['CVE-2026-123864', 'CVE-2026-126051']],
    ['24.22.3', TLS, []],
    ['26.10.0', PLAIN, KEPT_OPEN],
    ['26.10.0', TLS, [...KEPT_OPEN, 'CVE-2026-123864', 'CVE-2026-126051']],
    ['26.12.1', PLAIN, []],
    ['26.13.0', TLS, ['CVE-2026-123864', 'CVE-2026-126051']],
    ['26.13.1', TLS, []],
  ] as const)
    it(`names the missing fixes that concern the proxy, and no others: ${version} with ${JSON.stringify(use)}`, () => {
      const defect = runtimeDefect(version, use);
      assert.deepEqual(named(defect), [...fixes]);
      assert.equal(defect === undefined, fixes.length === 0);
    });

  for (const version of ['25.8.2', '27.0.0'])
    it(`says that the program is not tested with the release line of ${version}`, () =>
      assert.equal(
        runtimeDefect(version, PLAIN),
        `Node ${version} is of a line that this program is not tested with`,
      ));

  it('leads to the npm package if the Node of the executable and the image lacks a fix, since updates of them bring the same Node', () => {
    // Once this fails, the advice can go, here, in SECURITY.md and where files name SECURITY.md for it.
    assert.notEqual(runtimeDefect(RUNTIME_VERSION, TLS), undefined);
  });

  it('names the first release that has all missing fixes', () => {
    assert.match(runtimeDefect('26.10.0', PLAIN) ?? '', /; Node 26\.12\.1 has them$/);
    assert.match(runtimeDefect('24.20.0', TLS) ?? '', /; Node 24\.22\.3 has them$/);
  });

  it('describes every missing fix, also those that do not concern the proxy', () => {
    const text = describeRuntime({ node: '26.12.1', openssl: '3.5.9' });
    assert.match(text, /^Node 26\.12\.1, OpenSSL 3\.5\.9\nSecurity fixes .* Node 26\.13\.1:\n/);
    assert.match(text, /CVE-2026-126051: a client can crash the server; concerns TLS listener\n/);
    assert.match(text, /CVE-2026-123867: .*; concerns nothing here\n/);
    assert.doesNotMatch(text, /CVE-2026-105481/);
    assert.match(describeRuntime({ node: '26.13.1', openssl: '3.5.9' }), /No missing security fix is known/);
  });

  it('counts the release line of the Node that is built into the program as tested', () =>
    assert.doesNotMatch(runtimeDefect(RUNTIME_VERSION, TLS) ?? '', /not tested/));
});
