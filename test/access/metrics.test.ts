/**
 * What /metrics and /status of the program say of clients; each metric alone is in
 * test/observe/metrics.test.ts.
 */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';

/** The samples of one metric: labels in the order of the text → value. */
const samplesOf = (text: string, name: string): Map<string, number> =>
  new Map(
    [...text.matchAll(new RegExp(`^${name}\\{(.*)\\} (\\S+)$`, 'gm'))].map(([, labels = '', value]) => [
      labels.split(',').toSorted().join(),
      Number(value),
    ]),
  );

describe('/metrics with --clients', { timeout: 600_000 }, () => {
  it('counts requests, tokens, durations and errors of each client', async () => {
    await using opened = new AsyncDisposableStack();
    const remote = await startRemote();
    opened.defer(() => remote.close());
    const file = join(remote.directory, 'clients.json');
    const clients = [
      { name: 'ann', tokens: [hash('sha256', 'token-of-ann')] },
      { name: 'bob', tokens: [hash('sha256', 'token-of-bob')], endpoints: ['chat'] },
      { name: 'cyd', tokens: [hash('sha256', 'token-of-cyd')], requestsPerMinute: 1 },
    ];
    writeFileSync(file, JSON.stringify({ clients }));
    const admin = `127.0.0.1:${await freePort()}`;
    const more = [`--admin-address=${admin}`, `--clients=${file}`, '--port=0'];
    const proxy = await startProxyProcess([...remote.flags, ...more], remote.env);
    opened.defer(async () => void (await proxy.stop('SIGKILL')));

    const ask = async (token: string, path: string, body: object): Promise<number> => {
      const response = await fetch(proxy.url + path, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}` },
        body: JSON.stringify({
          ...{ model: 'sim-echo', max_tokens: 9, messages: [{ role: 'user', content: 'hello' }] },
          ...body,
        }),
      });
      await response.arrayBuffer();
      return response.status;
    };
    const [openai, anthropic] = ['/v1/chat/completions', '/v1/messages'];
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) {
      const asked = [
        ask('token-of-ann', openai, {}),
        ask('token-of-ann', anthropic, { stream: true }),
        ask('token-of-bob', openai, { stream: true }),
        ask('token-of-bob', anthropic, {}),
        ask('nobody', openai, {}),
      ];
      statuses.push(...(await Promise.all(asked)));
    }
    assert.deepEqual(statuses, Array(4).fill([200, 200, 200, 403, 401]).flat());
    assert.deepEqual(
      [await ask('token-of-cyd', openai, {}), await ask('token-of-cyd', openai, {})],
      [200, 429],
    );

    // A request counts once its connection has closed, which this side may see first.
    const count = 'privatemode_proxy_client_request_duration_seconds_count';
    const errors = 'privatemode_proxy_errors_total';
    const text = await eventually('all 22 requests in /metrics', async () => {
      const now = await (await fetch(`http://${admin}/metrics`)).text();
      const counted = [...samplesOf(now, count).values(), ...samplesOf(now, errors).values()];
      return counted.reduce((all, value) => all + value, 0) >= 22 && now;
    });
    assert.deepEqual(Object.fromEntries(samplesOf(text, 'privatemode_proxy_requests_total')), {
      'client="ann",code="200",method="POST",route="chat"': 4,
      'client="ann",code="200",method="POST",route="messages"': 4,
      'client="bob",code="200",method="POST",route="chat"': 4,
      'client="cyd",code="200",method="POST",route="chat"': 1,
      'client="cyd",code="429",method="POST",route="chat"': 1,
    });
    const counted = [...samplesOf(text, errors)].filter(([, value]) => value > 0);
    assert.deepEqual(Object.fromEntries(counted), {
      'client="",code="client_unknown"': 4,
      'client="bob",code="client_forbidden"': 4,
      'client="cyd",code="requests_per_minute_reached"': 1,
    });
    assert.deepEqual(Object.fromEntries(samplesOf(text, count)), {
      'client="ann"': 8,
      'client="bob"': 4,
      'client="cyd"': 2,
    });
    const tokens = samplesOf(text, 'privatemode_proxy_tokens_total');
    for (const [client, route] of [
      ['ann', 'chat'],
      ['ann', 'messages'],
      ['bob', 'chat'],
    ] as const) {
      for (const type of ['input', 'output']) {
        const labels = `client="${client}",model="sim-echo",route="${route}",type="${type}"`;
        const value = tokens.get(labels) ?? 0;
        assert.ok(value > 0 && value % 4 === 0, `${labels}: ${value}`);
      }
    }
    assert.equal(tokens.size, 8);
    const { traffic } = (await (await fetch(`http://${admin}/status`)).json()) as StatusReport;
    assert.deepEqual(new Set(traffic.finished.map(({ client }) => client)), new Set(['ann', 'bob', 'cyd']));
    for (const {
      tokens: [digest = ''],
    } of clients)
      assert.ok(!text.includes(digest));
  });
});
