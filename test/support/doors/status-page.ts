/** The status page on a server of its own, with what the proxy would say given by the test. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { loadStatusPage } from '../../../lib/observe/status-html.ts';
import type { Finished, StatusReport, TrafficSecond } from '../../../lib/observe/status-report.ts';
import { viewOf } from '../../../lib/observe/status-view.ts';
import { chainOfTrust } from '../../../lib/verdict/chain-of-trust.ts';
import type { Verdict } from '../../../lib/verdict/verdict.ts';
import { recordOf, savedFlags, verifyCommand } from '../evidence/verify.ts';
import { words } from '../remote/standing.ts';
import { finished } from './observed.ts';

const MANIFEST = 'c8d91525defe00bc823da47b4bf9e5a13a4a6f398aaeb36f508fd776a8b91917';
const VERDICT = '7d1a54127b222502f5b79b5fb0803061152a44f92b37e23c6527baf665d4da9a';
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
  const iso = (minutes: number): string => new Date(now + minutes * MINUTE).toISOString();
  return {
    ...{ now, lastError: null, standing: words('verified'), conditions: [] },
    traffic: { inFlight: 7, seconds: traffic(now), finished: lastRequests(now) },
    verification: {
      ...{ version: '0.1.0', protocol: 'v1', now: iso(0), verified: true, state: 'verified', verdict },
      epoch: {
        ...{ secretId: '5b1f0a52-8a0e-4f0b', manifestSha256: MANIFEST, verdictSha256: VERDICT },
        ...{ attestedAt: iso(-4), renewAt: iso(5), expiresAt: iso(6) },
      },
      chain: chainOfTrust(verdict),
    },
  };
}

/** The same with --clients: it is known who asked. */
export function withClients(status: StatusReport): StatusReport {
  const finished = status.traffic.finished.map((request, i) => ({
    ...request,
    ...(i % 4 === 3 ? {} : { client: ['ann', 'bob', 'search-service'][i % 3] }),
  }));
  return { ...status, clientsFile: MANIFEST, traffic: { ...status.traffic, finished } };
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
  const idle = { inFlight: 0, seconds: [], finished: [] };
  return {
    ...{ ...status, standing: words('rejected'), lastError, traffic: idle },
    verification: {
      ...{ ...status.verification, verified: false, state: 'rejected', epoch: null, verdict },
      chain: chainOfTrust(verdict),
    },
  };
}

/** Two minutes of traffic that rises and falls, the same at every call. */
function traffic(now: number): readonly TrafficSecond[] {
  const end = Math.floor(now / 1000) * 1000;
  return Array.from({ length: 120 }, (_, i) => {
    const wave = Math.sin(i / 17) * 90 + Math.sin(i / 5) * 30 + ((i * 37) % 23);
    return {
      ...{
        at: end - (120 - i) * 1000,
        inFlight: 7 + Math.round(3 * Math.sin(i / 13)),
        chunks: Math.round(290 + wave),
      },
      firstTokenMs: i % 4 === 0 ? 380 + ((i * 53) % 190) : null,
      gapMs: i % 2 === 0 ? 19 + ((i * 7) % 9) : null,
    };
  });
}

function lastRequests(now: number): readonly Finished[] {
  const chat = { endpoint: '/v1/chat/completions', model: 'gpt-oss-120b', status: 200, outcome: 'answered' };
  const uncounted = { tokensIn: null, tokensOut: null };
  const rows = [
    { ...chat, firstTokenMs: 412, tokensIn: 1840, tokensOut: 311, durationMs: 7312 },
    { ...chat, firstTokenMs: 388, tokensIn: 96, tokensOut: 1204, durationMs: 26_040 },
    { ...chat, firstTokenMs: 497, tokensIn: 22_410, tokensOut: 640, durationMs: 14_870 },
    { ...chat, firstTokenMs: null, tokensIn: 512, tokensOut: null, model: 'qwen3-embedding-4b' },
    { ...chat, ...uncounted, status: 429, outcome: 'service_error', firstTokenMs: null, durationMs: 61 },
    { ...chat, ...uncounted, outcome: 'client_aborted', firstTokenMs: 402, durationMs: 3120 },
    { ...chat, ...uncounted, outcome: 'broken_off', code: 'stream_unfinished', durationMs: 9207 },
    { ...chat, ...uncounted, outcome: 'refused', status: 404, code: 'unknown_path', endpoint: 'none' },
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
