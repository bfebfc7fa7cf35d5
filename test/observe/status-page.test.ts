import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { loadStatusPage, type VerdictFacts } from '../../lib/observe/status-page.ts';
import { STANDINGS, type StateName } from '../../lib/session/standing.ts';
import { standing } from '../support/remote/standing.ts';

const FILE = readFileSync(join(import.meta.dirname, '../../lib/observe/status-page.html'), 'utf8');
const NOW = Date.UTC(2026, 10, 1, 12);
const VERIFIED: VerdictFacts = {
  ...{ standing: standing('verified'), roots: 'vendor', now: NOW, lastError: null, failedCheck: null },
  ...{ attestedAt: NOW - 60_000, expiresAt: NOW + 60_000 },
};
const NOTHING = { ...VERIFIED, attestedAt: null, expiresAt: null };
const body = (facts: VerdictFacts): string => loadStatusPage().renderStatusPage(facts).body;

describe('the status page without JavaScript', () => {
  for (const [name, facts, title] of [
    ['verified, with times', VERIFIED, 'Verified'],
    ['custom roots', { ...VERIFIED, roots: 'custom' }, 'Verified under custom roots'],
    [
      'custom roots and a failing renewal',
      { ...VERIFIED, roots: 'custom', standing: standing('not-renewable') },
      'Verified under custom roots',
    ],
    ...Object.entries(STANDINGS).map(
      ([state, { title }]) => [state, { ...NOTHING, standing: standing(state as StateName) }, title] as const,
    ),
  ] as const) {
    it(`says "${title}": ${name}`, () => {
      assert.equal(/<h2[^>]*>(.*)<\/h2>/.exec(body(facts))?.[1], title);
    });
  }

  it('has the tone bad if a check failed, but plain if the service cannot be reached', () => {
    const tone = (state: StateName) =>
      /<section id="verdict" data-tone="(\w+)"/.exec(body({ ...NOTHING, standing: standing(state) }))?.[1];
    assert.deepEqual([tone('rejected'), tone('rejected-once'), tone('unreachable')], ['bad', 'bad', 'plain']);
  });

  it('says since when and until when the service is verified', () => {
    assert.match(body(VERIFIED), /<dt>Attested<\/dt><dd[^>]*><time datetime="2026-11-01T11:59:00.000Z">/);
    assert.match(body(VERIFIED), />Valid until<\/dt><dd[^>]*><time datetime="2026-11-01T12:01:00.000Z">/);
  });

  it('escapes the texts of errors and of failed checks', () => {
    const evil = `<img src=x onerror="a('b')">$&`;
    const lastError = { code: evil, message: evil, remedy: evil };
    const failedCheck = { title: evil, code: 'manifest_mismatch', expected: evil, found: evil };
    const text = body({ ...VERIFIED, lastError, failedCheck });
    assert.doesNotMatch(text, /<img/);
    const safe = '&lt;img src=x onerror=&quot;a(&#39;b&#39;)&quot;&gt;$&amp;';
    assert.equal(text.split(safe).length - 1, 6);
  });
});

describe('the file of the status page', () => {
  it('has a content security policy that allows its own style by digest, and loads nothing else', () => {
    const policy = loadStatusPage().renderStatusPage(VERIFIED).headers['content-security-policy'] ?? '';
    const style = /<style>([\s\S]*?)<\/style>/.exec(FILE)?.[1] ?? '';
    assert.ok(policy.startsWith("default-src 'none'; "));
    assert.ok(
      policy.includes(`style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'; `),
      policy,
    );
    assert.ok(policy.endsWith("base-uri 'none'; form-action 'none'; frame-ancestors 'none'"));
  });

  it('names no other host, and has no inline styles or handlers', () => {
    assert.doesNotMatch(FILE, /https?:|\/\/[a-z]/i);
    assert.doesNotMatch(FILE, /\s(?:style|on[a-z]+)=/i);
  });
});
