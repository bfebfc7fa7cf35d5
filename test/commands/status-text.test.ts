import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { renderStatus, type StatusFacts } from '../../lib/commands/status-text.ts';
import { words } from '../support/remote/standing.ts';

const NOW = Date.UTC(2026, 11, 1, 12, 0, 0);
const DIGEST = 'ab'.repeat(32);

type Facts = { status?: object; verification?: object };

/** A proxy that works, but for what is given. */
function facts({ status = {}, verification = {} }: Facts = {}): StatusFacts {
  const traffic = { inFlight: 0, seconds: [], finished: [], refused: [] };
  return {
    status: {
      ...{ version: '1.2.3', protocol: 'v1.40.0', now: NOW, startedAt: NOW - 1 },
      ...{ standing: words('verified'), lastError: null, conditions: [], traffic },
      epoch: {
        ...{ secretId: 's', manifestSha256: DIGEST, verdictSha256: DIGEST },
        ...{ attestedAt: NOW - 600_000, renewAt: NOW + 90_000, expiresAt: NOW + 1_800_000 },
      },
      ...status,
    },
    verification: {
      ...{ version: '1.2.3', protocol: 'v1.40.0', now: '', verified: true, state: 'verified', epoch: null },
      ...{ verdict: null, chain: [], manifests: [] },
      ...verification,
    },
  } as StatusFacts;
}

const conditions = [
  {
    ...{ id: 'limits_store_away', severity: 'critical', since: NOW - 90_000 },
    ...{ title: 'The store is away', reason: 'no \u001b[31m route', remedy: 'Check that it runs.' },
  },
  {
    id: 'tls_certificate_expiry',
    severity: 'warning',
    since: NOW,
    title: 'It expires',
    reason: 'soon',
    remedy: 'Renew it.',
  },
  { id: 'open', severity: 'info', since: NOW, title: 'It is open', reason: 'to all', remedy: 'Close it.' },
];

const link = (title: string, outcome: string, ...ids: string[]) => ({
  ...{ id: 'mesh', title, meaning: `What ${title} means.`, outcome },
  checks: ids.map((id) => ({ id, title: `Title of ${id}` })),
});
const failure = { id: 'snp.vmpl', code: 'attestation_failed', expected: '0', found: '2', source: 's' };
const rejected = {
  verified: false,
  verdict: { roots: 'vendor', failure },
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
const second = (ago: number, more: object = {}) => ({
  ...{ at: NOW - ago * 1_000, requests: 0, chunks: 0, firstTokenMs: [], gapMs: [] },
  ...more,
});
const traffic = (more: object) => ({
  status: { traffic: { inFlight: 0, seconds: [], finished: [], refused: [], ...more } },
});

const TABLE: readonly (readonly [name: string, given: Facts, lines: readonly string[]])[] = [
  [
    'a verified service, since when and until when',
    {},
    [
      '✓ Verified. Requests are encrypted for the service that the hardware attests.',
      '  since     2026-12-01 11:50:00 UTC',
      '  until     2026-12-01 12:30:00 UTC, in 30 min',
      '  renewal   in 90 s',
      `  manifest  ${DIGEST}`,
      '  proxy     v1.2.3, protocol v1.40.0',
    ],
  ],
  [
    'what else needs attention, what to do, and since when',
    { status: { conditions } },
    [
      'Needs attention',
      '  ✗ The store is away: no \\u{1b}[31m route',
      '      Check that it runs.',
      '      critical, since 2026-12-01 11:58:30 UTC [limits_store_away]',
      '  ! It expires: soon',
      '      warning, since 2026-12-01 12:00:00 UTC [tls_certificate_expiry]',
      '  · It is open: to all',
      '      info, since 2026-12-01 12:00:00 UTC [open]',
    ],
  ],
  [
    'the chain with its outcomes, and the first failed check in words',
    { status: { standing: words('rejected'), epoch: null, lastError }, verification: rejected },
    [
      '✗ Not verified: the service is rejected. No request leaves this machine.',
      'What failed',
      '  ✗ Title of snp.vmpl (snp.vmpl)',
      '      expected  0',
      '      found     2',
      '      Do not trust it.',
      '  ✓ Hardware     2 checks   What Hardware means.',
      '  ✗ Coordinator  1 check    What Coordinator means.',
      '  ? Secret       0 checks   What Secret means.',
    ],
  ],
  [
    'a renewal that failed while the secret is still good',
    {
      status: { standing: words('not-renewable'), lastError },
      verification: { ...rejected, verified: true },
    },
    [
      '! Verified, but the renewal fails. Requests are protected until the attestation expires.',
      'The last renewal failed; the secret in force goes on',
    ],
  ],
  [
    'the error of the last renewal beside the check that failed before it',
    {
      status: {
        standing: words('unreachable'),
        epoch: null,
        lastError: { ...lastError, code: 'upstream_reset', message: 'cut', remedy: 'Repair the network.' },
      },
      verification: rejected,
    },
    [
      'What failed',
      '  ✗ Title of snp.vmpl (snp.vmpl)',
      '      expected  0',
      '      found     2',
      '  ✗ cut [upstream_reset]',
      '      Repair the network.',
    ],
  ],
  [
    'that the trust roots are custom, not those of AMD and Intel',
    {
      verification: {
        verdict: { roots: 'custom', failure: null },
        chain: [{ ...link('Hardware', 'pass', 'a'), id: 'hardware' }, link('Mesh', 'pass', 'b')],
      },
    },
    [
      '! Verified under custom roots. The roots are not those of AMD and Intel: this says nothing about real hardware.',
      '  ! Hardware     1 check    What Hardware means.',
      '  ✓ Mesh         1 check    What Mesh means.',
    ],
  ],
];

const SCREEN = `✓ Verified. Requests are encrypted for the service that the hardware attests.
  since     2026-12-01 11:50:00 UTC
  until     2026-12-01 12:30:00 UTC, in 30 min
  renewal   in 90 s
  manifest  ${DIGEST}
  proxy     v1.2.3, protocol v1.40.0

Needs attention
  ! It expires: soon
      Renew it.
      warning, since 2026-12-01 12:00:00 UTC [tls_certificate_expiry]

Chain of trust
  ✓ Hardware     2 checks   What Hardware means.

Traffic
  in flight    1 request
  tokens       7.5 per second
  first token  median 100 ms, highest 200 ms in the last minute
  token gap    median 5.0 ms, highest 5.0 ms in the last minute
  cache        of 40,001 tokens in, 38,000 came from the cache, in the last 2 requests
  receipts     7 written, 2 LOST

Last requests
  11:59:57  answered        200  chat  m                            1.2 s  20 tokens
  11:59:57  failed          -    chat  -                            1.2 s    upstream_reset

Refused requests since the start
  11:59:57  12 ×     POST /x/*                           unknown_path

Enforced manifests
  2026-12-01T00:00:00Z  ${DIGEST}
`;

describe('the status for a terminal', () => {
  for (const [name, given, expected] of TABLE) {
    it(`shows ${name}`, () => {
      const text = renderStatus(facts(given), { colours: false });
      const lines = text.split('\n');
      // In this order: verify and the status page have the same.
      assert.deepEqual(
        lines.filter((line) => expected.includes(line)),
        expected,
        text,
      );
      assert.ok(text.endsWith('\n') && !text.includes('undefined') && !text.includes('\u001b'));
    });
  }

  it('shows a verified service in green if colours are on', () => {
    assert.match(renderStatus(facts(), { colours: true }), /^\u001b\[32m✓ Verified/);
  });

  it('names the client of each request with --clients, and has no such column without', () => {
    const finished = [request({ client: 'ann' }), request({ client: 'search-service' }), request()];
    const more = traffic({ finished }).status;
    const lines = (status: object): string[] =>
      renderStatus(facts({ status }), { colours: false }).split('Last requests\n')[1]?.split('\n') ?? [];
    const shown = lines({ ...more, clientsFile: [] });
    assert.deepEqual(
      ['ann           ', 'search-service', '-             '].map((name, i) =>
        shown[i]?.includes(`  ${name}  `),
      ),
      [true, true, true],
      shown.join('\n'),
    );
    assert.ok(lines(more).every((line) => !line.includes('ann')));
  });

  it('is one screen: state, attention, links, traffic, requests, refusals, receipts and manifests', () => {
    const seconds = [
      second(10, { chunks: 30, firstTokenMs: [200, 100], gapMs: [5] }),
      second(1, { chunks: 45 }),
    ];
    const finished = [
      request({ tokensIn: 40_000, tokensCached: 38_000 }),
      request({ outcome: 'failed', status: null, model: null, tokensOut: null, code: 'upstream_reset' }),
    ];
    const refused = [{ method: 'POST', path: '/x/*', code: 'unknown_path', count: 12, at: NOW - 3_000 }];
    const status = {
      ...traffic({ inFlight: 1, seconds, finished, refused }).status,
      ...{ conditions: conditions.slice(1, 2), receipts: { instance: 'i', written: 7, lost: 2 } },
    };
    const chain = [link('Hardware', 'pass', 'a', 'b')];
    const manifests = [{ since: '2026-12-01T00:00:00Z', sha256: DIGEST, file: '2.json' }];
    const verification = { chain, verdict: { roots: 'vendor', failure: null }, manifests };
    assert.equal(renderStatus(facts({ status, verification }), { colours: false }), SCREEN);
  });

  it('lets no text of the service or of an application steer the terminal', () => {
    const evil = '\u001b]0;title\u0007\u202e\u0000';
    const text = renderStatus(
      facts({
        status: {
          ...{ state: 'failing', version: evil, protocol: evil, lastError: { ...lastError, remedy: evil } },
          traffic: {
            inFlight: 0,
            seconds: [],
            finished: [request({ model: evil, outcome: evil, code: evil })],
            refused: [{ method: evil, path: evil, code: evil, count: 1, at: NOW }],
          },
        },
        verification: {
          ...{
            verified: false,
            verdict: { roots: 'vendor', failure: { ...failure, expected: evil, found: evil } },
          },
          ...{ chain: [link(evil, 'pass', evil)], manifests: [{ since: evil, sha256: evil, file: evil }] },
        },
      }),
      { colours: false },
    );
    assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u202e]/);
    assert.match(text, /\\u\{1b\}\]0;title/);
  });
});
