/**
 * Each state of the session and each notice, and what every view says of it: /status, the terminal, the page,
 * /verification, /readyz, the metrics and the log. test/e2e/states.test.ts asks a program from outside.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toText } from '../../lib/commands/status-text.ts';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { readyzResponse } from '../../lib/observe/health.ts';
import { createMetrics } from '../../lib/observe/metrics.ts';
import { createNotices, NOTICES, type NoticeId } from '../../lib/observe/notices.ts';
import { watchService } from '../../lib/observe/service-watch.ts';
import { loadStatusPage } from '../../lib/observe/status-html.ts';
import { statusReport } from '../../lib/observe/status-report.ts';
import { MARKS, viewOf } from '../../lib/observe/status-view.ts';
import { verificationDocument } from '../../lib/observe/verification-document.ts';
import type { Epoch } from '../../lib/session/session.ts';
import { STANDINGS, type StateName, standingOf } from '../../lib/session/standing.ts';
import { newState, type SessionState } from '../../lib/session/state.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { metricsOptions } from '../support/doors/observed.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const NOW = Date.UTC(2026, 11, 1, 12);
const DIGEST = 'ab'.repeat(32);
const TERM = {
  ...{ secretId: 's', manifestSha256: DIGEST, verdictSha256: DIGEST },
  ...{ attestedAt: NOW - 60_000, renewAt: NOW + 60_000, expiresAt: NOW + 120_000, expiresMonotonic: 120_000 },
};
const error = (code: ErrorCode): PrivatemodeError => new PrivatemodeError(code, 'why it failed');
const rejection = (code: ErrorCode, counts: boolean): Partial<SessionState> => ({
  rejection: { part: 'evidence', error: error(code), first: 0, counts },
});

/** What the session knows in each state, and the notice of it. */
const STATES: Readonly<Record<StateName, readonly [facts: Partial<SessionState>, notice?: NoticeId]>> = {
  ended: [{ term: TERM, isEnding: true }],
  verified: [{ term: TERM }],
  'not-renewable': [{ term: TERM, error: error('upstream_unreachable') }, 'renewal_fails'],
  'manifest-not-understood': [rejection('manifest_unsupported', true), 'manifest_unusable'],
  rejected: [rejection('attestation_failed', true), 'service_rejected'],
  'rejected-once': [rejection('attestation_failed', false), 'service_rejected_once'],
  'key-refused': [{ error: error('api_key_rejected') }, 'key_refused'],
  'client-too-old': [{ error: error('client_too_old') }, 'client_too_old'],
  unreachable: [{ error: error('upstream_unreachable') }, 'service_unreachable'],
  'awaiting-key': [{ hasKey: false }],
  starting: [{}],
};

/** Makes everything that a proxy shows which knows `facts`, after `happen`. */
async function views(
  facts: Partial<SessionState>,
  happen: (
    notices: ReturnType<typeof createNotices>,
    service: ReturnType<typeof watchService>,
  ) => void = () => {},
) {
  const { log, lines } = recordingLogger();
  const clock = createFakeClock(NOW);
  const known = { ...newState(false), hasKey: true, ...facts };
  const standing = () => standingOf(known, { now: clock.now(), monotonic: clock.monotonic() });
  const current = () => (standing().verified ? (TERM as unknown as Epoch) : undefined);
  const notices = createNotices(log, clock, standing);
  const service = watchService(notices, clock);
  notices.look();
  happen(notices, service);
  const session = { standing, current, lastVerdict: () => undefined };
  const about = {
    ...{ now: NOW, conditions: notices.list() },
    traffic: { inFlight: 0, seconds: [], finished: [] },
    verification: verificationDocument(session, { protocol: 'v1', now: NOW }),
  };
  const status = statusReport(about, standing());
  const view = viewOf(status);
  const { body } = loadStatusPage()(view);
  const shown = { standing, protection: current, notices: notices.list };
  return {
    ...{ standing: standing(), status, lines: lines.filter(({ condition }) => condition !== undefined) },
    terminal: plain(toText(view, false)),
    page: plain(
      [/<title>.*<\/title>/, /<main>[\s\S]*<\/main>/].map((part) => part.exec(body)?.[0]).join(' '),
    ),
    metrics: await createMetrics(metricsOptions(shown)).render(),
    readyz: readyzResponse(standing()),
    serving: readyzResponse({ ...standing(), notServing: service.notServing() }),
  };
}

/** The words alone. */
const plain = (text: string): string =>
  text
    .replace(/<[^>]*>/g, ' ')
    .replace(/&#39;/g, "'")
    .replace(/&#34;/g, '"')
    .replace(/\s+/g, ' ');

type Shown = Awaited<ReturnType<typeof views>>;

/** Every view has exactly these notices, each with the same words. */
function assertNotices(
  { status, lines, terminal, page, metrics }: Shown,
  expected: readonly (readonly [id: NoticeId, reason: string, remedy: string])[],
): void {
  assert.deepEqual(
    status.conditions.map(({ id, title, reason, remedy }) => [id, title, reason, remedy]),
    expected.map(([id, reason, remedy]) => [id, NOTICES[id].title, reason, remedy]),
  );
  assert.deepEqual(
    lines.map(({ level, msg, condition, reason, remedy }) => [level, msg, condition, reason, remedy]),
    expected.map(([id, reason, remedy]) => {
      const { severity, title } = NOTICES[id];
      return [severity === 'critical' ? 'ERROR' : 'WARN', title, id, reason, remedy];
    }),
  );
  assert.deepEqual(
    [...metrics.matchAll(/^privatemode_proxy_condition\{(.*)\} 1$/gm)].map(([, labels]) => labels),
    expected.map(([id]) => `id="${id}",severity="${NOTICES[id].severity}"`),
  );
  for (const [id, reason, remedy] of expected)
    for (const view of [terminal, page])
      for (const words of [`${NOTICES[id].title}: ${reason}`, `What to do ${remedy}`, `[${id}]`])
        assert.ok(view.includes(words), `${words} is not in ${view}`);
  for (const view of [terminal, page])
    assert.equal(view.split('Needs attention').length - 1, Math.min(1, expected.length));
  for (const [id, reason] of expected) assert.ok(!metrics.includes(reason), id);
}

/** No view claims that the service is verified; what it is called in metrics and in JSON is no claim. */
function assertNoClaim({ status, lines, terminal, page, readyz, metrics }: Shown): void {
  const { title, meaning } = status.standing;
  for (const text of [terminal, page, title, meaning, readyz.body, ...lines.map(({ msg }) => String(msg))])
    assert.doesNotMatch(text.replace(/\b(?:not|being) verified/gi, ''), /verified|protected/i);
  assert.deepEqual([status.standing.verified, status.verification.verified], [false, false]);
  assert.equal(status.verification.epoch, null);
  assert.doesNotMatch(metrics, /^privatemode_proxy_(?:secret_remaining_seconds|manifest_info)\b/m);
}

describe('every view of a proxy', () => {
  for (const [state, [facts, notice]] of Object.entries(STATES) as [
    StateName,
    (typeof STATES)[StateName],
  ][]) {
    it(`says the same of the state ${state}`, async () => {
      const shown = await views(facts);
      const { standing, status, terminal, page, metrics, readyz } = shown;
      const { title, meaning, tone, verified } = STANDINGS[state];
      assert.deepEqual(
        [standing.state, status.standing, status.verification.state, status.verification.verified],
        [state, { state, verified, tone, title, meaning }, state, verified],
      );
      assert.ok(terminal.startsWith(`${MARKS[tone]} ${title}. ${meaning} `), terminal);
      assert.ok(
        page.startsWith(` ${MARKS[tone]} ${title} · `) && page.includes(` ${title} ${meaning} `),
        page,
      );
      assert.match(metrics, new RegExp(`^privatemode_proxy_verified ${Number(verified)}$`, 'm'));
      assert.deepEqual(shown.serving, readyz);
      assert.equal(readyz.status, verified || state === 'awaiting-key' ? 204 : 503);
      if (!verified) assertNoClaim(shown);

      const { error: why } = standing;
      assert.equal(why === undefined, notice === undefined);
      if (notice === undefined || why === undefined) return assertNotices(shown, []);
      const reason = `${why.code}: ${why.message}`;
      assertNotices(shown, [[notice, reason, why.remedy]]);
      assert.equal(NOTICES[notice].title, title);
      assert.equal(status.lastError?.remedy, why.remedy);
      if (readyz.status === 503) assert.equal(readyz.body, `${state}: ${reason}\n`);
    });
  }

  for (const [id, { state, remedy }] of Object.entries(NOTICES) as [NoticeId, (typeof NOTICES)[NoticeId]][]) {
    if (state !== undefined || id === 'service_failing') continue;
    it(`says the same of the condition ${id}`, async () => {
      const reason = `reason of ${id}`;
      const shown = await views(STATES.verified[0], (notices) => notices.set(id, reason));
      assertNotices(shown, [[id, reason, remedy]]);
      assert.equal(shown.status.standing.title, STANDINGS.verified.title);
      assert.deepEqual([shown.serving.status, shown.serving.body], [204, '']);
    });
  }

  it('says of a verified service that requests do not reach it, and of another one nothing else than before', async () => {
    const fail = (_: unknown, { failed }: ReturnType<typeof watchService>): void => {
      for (let i = 0; i < 3; i++) failed('no route');
    };
    const { title, remedy } = NOTICES.service_failing;
    const shown = await views(STATES.verified[0], fail);
    assertNotices(shown, [['service_failing', 'no route', remedy]]);
    const { status, terminal, page, readyz, serving } = shown;
    const headline = `Verified, but t${title.slice(1)}`;
    assert.equal(status.standing.verified, true);
    assert.ok(terminal.startsWith(`! ${headline}. `) && page.startsWith(` ! ${headline} · `));
    assert.deepEqual([readyz.status, serving.body], [204, `verified: ${title}: no route\n`]);

    const rejected = await views(STATES.rejected[0], fail);
    assertNoClaim(rejected);
    assert.equal(rejected.status.standing.title, STANDINGS.rejected.title);
    assert.deepEqual(rejected.serving, rejected.readyz);
  });
});
