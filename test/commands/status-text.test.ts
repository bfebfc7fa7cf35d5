import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toText } from '../../lib/commands/status-text.ts';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { viewOf } from '../../lib/observe/status-view.ts';
import { words } from '../support/remote/standing.ts';

const NOW = Date.UTC(2026, 11, 1, 12, 0, 0);
const DIGEST = 'ab'.repeat(32);
const iso = (ms: number): string => new Date(ms).toISOString();
const TRAFFIC = { inFlight: 0, seconds: [], finished: [] };

/** A proxy that works, but for what is given. */
const reported = ({
  verification = {},
  ...more
}: {
  verification?: object;
  [name: string]: unknown;
} = {}): StatusReport =>
  ({
    ...{ now: NOW, standing: words('verified'), lastError: null, conditions: [], traffic: TRAFFIC },
    ...more,
    verification: {
      ...{ version: '1.2.3', protocol: 'v1.40.0', verified: true, verdict: null, chain: [] },
      epoch: { manifestSha256: DIGEST, attestedAt: iso(NOW - 600_000), expiresAt: iso(NOW + 1_800_000) },
      ...verification,
    },
  }) as unknown as StatusReport;
const textOf = (given: Parameters<typeof reported>[0], colours = false): string =>
  toText(viewOf(reported(given)), colours);

const condition = (id: string, severity: string, title: string, reason: string) => ({
  ...{ id, severity, title, reason, since: NOW - 90_000, remedy: `Remedy of ${id}.` },
});
const check = (id: string, outcome: string) => ({ id, outcome, expected: 'e', found: 'f', source: 's' });
const link = (title: string, outcome: string, ...ids: string[]) => ({
  ...{ id: title.toLowerCase(), title, meaning: `What ${title} means.`, outcome },
  checks: ids.map((id) => ({ id, title: id })),
});
const failure = { ...check('snp.vmpl', 'fail'), code: 'attestation_failed', expected: '0', found: '2' };
const rejected = {
  verified: false,
  epoch: null,
  verdict: { roots: 'vendor', failure, checks: [check('a', 'pass'), failure] },
  chain: [
    link('Hardware', 'pass', 'a', 'b'),
    link('Coordinator', 'fail', 'snp.vmpl'),
    link('Secret', 'unknown'),
  ],
};
const lastError = { code: 'attestation_failed', message: 'as the check says', remedy: 'Do not trust it.' };
const request = (more: object = {}) => ({
  ...{ id: 'r', at: NOW - 3_000, endpoint: 'chat', model: 'm', status: 200, outcome: 'answered', code: null },
  ...{ durationMs: 1_234, firstTokenMs: 9, tokensIn: 1, tokensOut: 20, tokensCached: null },
  ...more,
});

const SCREEN = `✓ Verified. Requests are encrypted for the service that the hardware attests.
  Attested           2026-12-01 11:50:00 UTC  10 min ago
  Valid until        2026-12-01 12:30:00 UTC  30 min left
  As of              2026-12-01 12:00:00 UTC  version 1.2.3, protocol v1.40.0
  Manifest, SHA-256  ${DIGEST}

Needs attention
  ✗ The store is away: no \\u{1b}[31m route
      What to do  Remedy of limits_store_away.
      Since       2026-12-01 11:58:30 UTC, critical [limits_store_away]
  ! It expires: soon
      What to do  Remedy of tls_certificate_expiry.
      Since       2026-12-01 11:58:30 UTC, warning [tls_certificate_expiry]
  · It is open: to all
      What to do  Remedy of open.
      Since       2026-12-01 11:58:30 UTC, info [open]

Chain of trust  Each vouches for the next.
  ✓ Hardware  2 checks  What Hardware means.

Traffic  The last two minutes.
  Requests in flight   1       highest 1
  Tokens per second    7.5     highest 45
  Time to first token  200 ms  highest 200 ms
  Gap between tokens   5.0 ms  highest 5.0 ms

Last requests  Of 40,001 tokens in, 38,000 came from the cache.
  Time (UTC)  Endpoint  Model  Client  Outcome                   First token  Tokens in / out  Duration
  11:59:57    chat      m      ann     200 answered              9.0 ms       40000 / 20       1.23 s
  11:59:57    POST /x   –      –       – failed: upstream_reset  9.0 ms       1 / –            1.23 s
`;

describe('the status for a terminal', () => {
  it('has all of a proxy: state, attention, links, traffic and requests', () => {
    const second = (ago: number, more: object) => ({
      ...{ at: NOW - ago * 1_000, inFlight: 1, chunks: 0, firstTokenMs: null, gapMs: null },
      ...more,
    });
    const lost = { outcome: 'failed', status: null, model: null, tokensOut: null, code: 'upstream_reset' };
    const traffic = {
      inFlight: 1,
      seconds: [
        second(10, { chunks: 30, firstTokenMs: 100, gapMs: 5 }),
        second(1, { chunks: 45, inFlight: 0, firstTokenMs: 200 }),
      ],
      finished: [
        request({ tokensIn: 40_000, tokensCached: 38_000, client: 'ann' }),
        request({ ...lost, ...{ endpoint: 'none', method: 'POST', path: '/x' } }),
      ],
    };
    const conditions = [
      condition('limits_store_away', 'critical', 'The store is away', 'no \u001b[31m route'),
      condition('tls_certificate_expiry', 'warning', 'It expires', 'soon'),
      condition('open', 'info', 'It is open', 'to all'),
    ];
    const verification = {
      chain: [link('Hardware', 'pass', 'a', 'b')],
      verdict: { roots: 'vendor', failure: null, checks: [] },
    };
    assert.equal(textOf({ traffic, conditions, verification, clientsFile: DIGEST }), SCREEN);
  });

  it('says what to do about a rejected service, which check failed, and how far the chain holds', () => {
    const text = textOf({ standing: words('rejected'), lastError, verification: rejected });
    assert.ok(
      text.startsWith(`✗ Not verified: the service is rejected. No request leaves this machine.
  · What to do    Do not trust it.
  ✗ Failed check  Privilege level (snp.vmpl)
      Expected  0
      Found     2
    As of         2026-12-01 12:00:00 UTC  version 1.2.3, protocol v1.40.0
`),
      text,
    );
    assert.ok(
      text.includes(`
  ✓ Hardware     2 checks             What Hardware means.
  ✗ Coordinator  1 of 1 check failed  What Coordinator means.
  · Secret       not established      What Secret means.
`),
      text,
    );
  });

  it('never looks verified once the secret has expired, whatever the proxy says', () => {
    const epoch = { ...reported().verification.epoch, expiresAt: iso(NOW - 1) };
    const text = textOf({ verification: { epoch } });
    assert.match(text, /^✗ Not verified\. The attestation has expired\. [\s\S]* Valid until .* expired\n/);
  });

  it('is green for a verified service if colours are on', () =>
    assert.match(textOf({}, true), /^\u001b\[32m✓ Verified/));

  it('lets no text of the service or of an application steer the terminal', () => {
    const evil = '\u001b]0;title\u0007\u202e\u0000';
    const text = textOf({
      lastError: { code: evil, message: evil, remedy: evil },
      conditions: [condition(evil, 'critical', evil, evil)],
      traffic: {
        ...TRAFFIC,
        finished: [request({ model: evil, outcome: evil, code: evil, client: evil, endpoint: evil })],
      },
      verification: {
        verdict: {
          roots: 'vendor',
          failure: { ...failure, id: evil, expected: evil, found: evil },
          checks: [],
        },
        ...{ version: evil, protocol: evil, chain: [link(evil, 'pass', evil)] },
      },
    });
    assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u202e]/);
    assert.match(text, /\\u\{1b\}\]0;title/);
  });
});
