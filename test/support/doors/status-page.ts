/** The status page on a server of its own, with what the proxy would say given by the test. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { EnforcedManifest } from '../../../lib/manifest-log.ts';
import { loadStatusPage } from '../../../lib/observe/status-html.ts';
import type { Finished, StatusReport, TrafficSecond } from '../../../lib/observe/status-report.ts';
import { viewOf } from '../../../lib/observe/status-view.ts';
import { chainOfTrust } from '../../../lib/verdict/chain-of-trust.ts';
import type { Verdict } from '../../../lib/verdict/verdict.ts';
import { recordOf, savedFlags, verifyCommand } from '../evidence/verify.ts';
import { words } from '../remote/standing.ts';
import { finished } from './observed.ts';

const SHA = {
  now: 'c8d91525defe00bc823da47b4bf9e5a13a4a6f398aaeb36f508fd776a8b91917',
  before: '384a2137e534357d74392bf3940373ff49d309d91551376b5a7f828e372af42b',
  first: '0f6c1f3b7bd2f1a0b5e4d1c29a7788e6635f2f0f9f3d3a1de0c4b5a697887766',
  verdict: '7d1a54127b222502f5b79b5fb0803061152a44f92b37e23c6527baf665d4da9a',
};
const MINUTE = 60_000;

/**
 * A verdict on real evidence, as under the roots of AMD; `failing`: the id of a check that failed, with what
 * was found.
 */
async function verdictOf(failing?: { readonly id: string; readonly found: string }): Promise<Verdict> {
  const argv = [...savedFlags(recordOf('synthetic')), '--json'];
  const verdict: Verdict = { ...(await verifyCommand(argv)).json(), roots: 'vendor' };
  if (failing === undefined) return verdict;
  const failure = { outcome: 'fail', code: 'attestation_failed' } as const;
  const checks = verdict.checks.map((check) =>
    check.id === failing.id ? { ...check, ...failing, ...failure } : check,
  );
  const failed = checks.find(({ id }) => id === failing.id);
  if (failed === undefined) throw new Error(`no check ${failing.id}`);
  return { ...verdict, outcome: 'rejected', checks, failure: { ...failed, code: failure.code } };
}

/** Attested 4 minutes ago, with traffic, at this moment. */
export async function verifiedScene(now = Date.now()): Promise<StatusReport> {
  const verdict = await verdictOf();
  const times = { attestedAt: now - 4 * MINUTE, renewAt: now + 5 * MINUTE, expiresAt: now + 6 * MINUTE };
  const ids = { secretId: '5b1f0a52-8a0e-4f0b', manifestSha256: SHA.now, verdictSha256: SHA.verdict };
  const about = { version: '0.1.0', protocol: 'v1' };
  const inRfc3339 = Object.fromEntries(
    Object.entries(times).map(([name, at]) => [name, new Date(at).toISOString()]),
  ) as Record<keyof typeof times, string>;
  return {
    ...{ ...about, now, startedAt: now - 200 * MINUTE, lastError: null },
    standing: words('verified'),
    epoch: { ...ids, ...times },
    conditions: [],
    traffic: {
      ...{ inFlight: 7, seconds: traffic(now), finished: lastRequests(now) },
      refused: [{ method: 'POST', path: '/openai/*', code: 'unknown_path', count: 12, at: now - MINUTE }],
    },
    receipts: { instance: 'a1b2', written: 1482, lost: 0 },
    verification: {
      ...{ ...about, now: new Date(now).toISOString(), verified: true, state: 'verified', verdict },
      epoch: { ...ids, ...inRfc3339 },
      chain: chainOfTrust(verdict),
      manifests: manifests(now).slice(1),
    },
  };
}

/** The same with --clients: it is known who asked. */
export function withClients(status: StatusReport): StatusReport {
  const finished = status.traffic.finished.map((request, i) => ({
    ...request,
    ...(i % 4 === 3 ? {} : { client: ['ann', 'bob', 'search-service'][i % 3] }),
  }));
  return { ...status, traffic: { ...status.traffic, finished } };
}

/** The same with a condition of each severity. */
export function withConditions(status: StatusReport): StatusReport {
  const { now } = status;
  return {
    ...status,
    conditions: [
      {
        ...{ id: 'clients_file_unusable', severity: 'critical', since: now - 3 * MINUTE },
        title: 'The clients file cannot be used; what was known stays',
        reason:
          'failed to read the file "/etc/privatemode-proxy/clients.json" of --clients: EACCES: this user may not open it, or a directory on its path; change their permissions',
        remedy: 'Repair the file, or put the former one back; the proxy reads it again by itself.',
      },
      {
        ...{ id: 'tls_certificate_expiry', severity: 'warning', since: now - 200 * MINUTE },
        title: 'The TLS certificate must be renewed',
        reason:
          'the certificate of CN=gateway.example in /etc/privatemode-proxy/tls.crt expires on 2026-12-05 10:00 UTC',
        remedy: 'Put the renewed certificate into the file; the proxy reads it again by itself.',
      },
      {
        ...{ id: 'counts_waiting', severity: 'info', since: now - 200 * MINUTE },
        title: 'Other machines can use this proxy in plain text',
        reason: '--listen-address 0.0.0.0 without TLS',
        remedy: 'Set --listen-address=127.0.0.1, or --tls-cert-path and --tls-key-path.',
      },
    ],
  };
}

/** Nothing is attested: a check failed. */
export async function failedScene(now = Date.now()): Promise<StatusReport> {
  const status = await verifiedScene(now);
  const verdict = await verdictOf({
    id: 'snp.tcb.reported',
    found: 'bootloader 10, tee 0, snp 27, microcode 88',
  });
  const lastError = {
    code: 'attestation_failed',
    message: 'the service failed the check snp.tcb.reported',
    remedy: 'Do not send anything; run privatemode-proxy verify for all checks',
  };
  const idle = { inFlight: 0, seconds: [], finished: [], refused: [] };
  return {
    ...{ ...status, standing: words('rejected'), epoch: null, lastError, traffic: idle },
    verification: {
      ...{ ...status.verification, verified: false, state: 'rejected', epoch: null, verdict },
      chain: chainOfTrust(verdict),
    },
  };
}

/** The same service under a new manifest. */
export function withNewManifest(status: StatusReport, now = Date.now()): StatusReport {
  const [newest] = manifests(now) as [EnforcedManifest];
  const { verification } = status;
  return { ...status, verification: { ...verification, manifests: [newest, ...verification.manifests] } };
}

function manifests(now: number): readonly EnforcedManifest[] {
  const entry = (daysAgo: number, sha256: string): EnforcedManifest => {
    const since = `${new Date(now - daysAgo * 1440 * MINUTE).toISOString().slice(0, 19)}Z`;
    return { since, sha256, file: `manifest_${since}.json` };
  };
  return [entry(0, SHA.now), entry(12, SHA.now), entry(40, SHA.before), entry(97, SHA.first)];
}

/** Two minutes of traffic that rises and falls, the same at every call. */
function traffic(now: number): readonly TrafficSecond[] {
  const end = Math.floor(now / 1000) * 1000;
  return Array.from({ length: 120 }, (_, i) => {
    const wave = Math.sin(i / 17) * 90 + Math.sin(i / 5) * 30 + ((i * 37) % 23);
    return {
      ...{
        at: end - (120 - i) * 1000,
        requests: i % 3 === 0 ? 1 : 0,
        inFlight: 7 + Math.round(3 * Math.sin(i / 13)),
        chunks: Math.round(290 + wave),
      },
      firstTokenMs: i % 4 === 0 ? [380 + ((i * 53) % 190), 410 + ((i * 31) % 260)] : [],
      gapMs: i % 2 === 0 ? [19 + ((i * 7) % 9), 21 + ((i * 5) % 6)] : [],
    };
  });
}

function lastRequests(now: number): readonly Finished[] {
  const chat = { endpoint: '/v1/chat/completions', model: 'gpt-oss-120b', status: 200, outcome: 'answered' };
  const rows = [
    { ...chat, firstTokenMs: 412, tokensIn: 1840, tokensOut: 311, durationMs: 7312 },
    { ...chat, firstTokenMs: 388, tokensIn: 96, tokensOut: 1204, durationMs: 26_040 },
    {
      ...chat,
      endpoint: '/v1/messages',
      firstTokenMs: 497,
      tokensIn: 22_410,
      tokensOut: 640,
      durationMs: 14_870,
    },
    {
      ...chat,
      endpoint: '/v1/embeddings',
      model: 'qwen3-embedding-4b',
      firstTokenMs: null,
      tokensIn: 512,
      tokensOut: null,
      durationMs: 84,
    },
    {
      ...chat,
      status: 429,
      outcome: 'service_error',
      firstTokenMs: null,
      tokensIn: null,
      tokensOut: null,
      durationMs: 61,
    },
    {
      ...chat,
      outcome: 'client_aborted',
      firstTokenMs: 402,
      tokensIn: null,
      tokensOut: null,
      durationMs: 3120,
    },
    {
      ...chat,
      outcome: 'broken_off',
      code: 'stream_unfinished',
      firstTokenMs: 455,
      tokensIn: null,
      tokensOut: null,
      durationMs: 9207,
    },
    {
      ...chat,
      model: null,
      status: 400,
      outcome: 'refused',
      code: 'body_invalid',
      firstTokenMs: null,
      tokensIn: null,
      tokensOut: null,
      durationMs: 2,
    },
    { ...chat, firstTokenMs: 371, tokensIn: 310, tokensOut: 95, durationMs: 2411 },
  ];
  return rows.map((row, i) =>
    finished({
      tokensCached: row.tokensIn === null ? null : Math.round(row.tokensIn * 0.75),
      ...row,
      id: `proxy_019ab3d2-7c40-7${i}5e-9d0a-4f6b1c2e8a77`,
      at: now - 900 - i * 4_300,
    }),
  );
}

export interface StatusServer {
  readonly url: string;
  /** What the proxy says; a test changes it while the page is open. */
  scene: StatusReport;
  close(): Promise<void>;
}

/** Serves the page as the admin listener does, as of the time of each answer. */
export async function serveStatusPage(scene: StatusReport): Promise<StatusServer> {
  const page = loadStatusPage();
  const served = { scene };
  const server = createServer((_, response) => {
    const { status, headers, body } = page(viewOf({ ...served.scene, now: Date.now() }));
    response.writeHead(status, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(served, {
    url: `http://127.0.0.1:${port}/`,
    close(): Promise<void> {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  });
}
