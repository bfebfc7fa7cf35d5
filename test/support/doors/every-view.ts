/** Everything by which a running proxy says whether it is verified, as it is seen from outside. */
import assert from 'node:assert/strict';
import { NOTICES } from '../../../lib/observe/notices.ts';
import type { StatusReport } from '../../../lib/observe/status-report.ts';
import type { VerificationDocument } from '../../../lib/observe/verification-document.ts';
import { STANDINGS, type StateName } from '../../../lib/session/standing.ts';
import { runCommand } from '../processes/command.ts';
import type { Program } from '../processes/program.ts';

const get = (url: string): Promise<Response> => fetch(url, { headers: { connection: 'close' } });

/** Asserts that every view shows this state. `admin`: the port of the admin listener on loopback. */
export async function assertEveryView({ url }: Pick<Program, 'url'>, admin: number, state: StateName) {
  const base = `http://127.0.0.1:${admin}`;
  const [readyz, adminReadyz, status, verification, metrics] = await Promise.all([
    get(`${url}/readyz`),
    get(`${base}/readyz`),
    get(`${base}/status`).then(async (response) => (await response.json()) as StatusReport),
    get(`${base}/verification`).then(async (response) => (await response.json()) as VerificationDocument),
    get(`${base}/metrics`).then((response) => response.text()),
  ]);
  const health = await runCommand(['healthcheck', `--port=${new URL(url).port}`]);
  const command = await runCommand(['status', `--admin-address=127.0.0.1:${admin}`]);
  const { title, verified } = STANDINGS[state];
  const ids = Object.entries(NOTICES).flatMap(([id, row]) => (row.state === state ? [id] : []));
  const shown = {
    ready: [readyz.status, adminReadyz.status, health.code],
    states: [status.standing.state, verification.state],
    verified: [status.standing.verified, verification.verified],
    gauge: /^privatemode_proxy_verified (\d)$/m.exec(metrics)?.[1],
    secretInMetrics: /^privatemode_proxy_secret_remaining_seconds /m.test(metrics),
    conditions: status.conditions.map(({ id }) => id),
    conditionsInMetrics: [...metrics.matchAll(/^privatemode_proxy_condition\{id="(\w+)"/gm)].map(
      ([, id]) => id,
    ),
    commandCode: command.code,
  };
  assert.deepEqual(shown, {
    ready: verified ? [204, 204, 0] : [503, 503, 1],
    states: [state, state],
    verified: [verified, verified],
    gauge: verified ? '1' : '0',
    secretInMetrics: verified,
    conditions: ids,
    conditionsInMetrics: ids,
    commandCode: verified ? 35 : 10, // a simulator's roots are named by a flag
  });
  assert.match(command.stdout.split('\n')[0] ?? '', verified ? /roots/ : new RegExp(title));
}
