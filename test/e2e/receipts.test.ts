/** Receipts of real requests: what they say, under every way in which a request can end, and that they hold (docs/receipts.md). */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { main } from '../../lib/cli.ts';
import { checkReceipts } from '../../lib/transparency/check-receipts.ts';
import { startProxyProcess } from '../support/proxy-process.ts';
import { type Stack, startStack } from '../support/stack.ts';

const sha256 = (bytes: string | Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const NOTHING = { sha256: sha256(''), bytes: 0 };

interface Line {
  readonly [member: string]: unknown;
  readonly id: string;
  readonly type: string;
  readonly epoch: {
    readonly secretId: string;
    readonly manifestSha256: string;
    readonly verdictSha256: string;
  } | null;
}

/** All lines of all instances that lie in the directory now. */
const linesIn = (directory: string): Line[] =>
  readdirSync(directory)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(join(directory, name), 'utf8').trimEnd().split('\n'))
    .map((line) => JSON.parse(line));

const requestsIn = (directory: string): Line[] => linesIn(directory).filter(({ type }) => type === 'request');

/** The receipt that a response names, once it is written. */
async function receiptOf(directory: string, name: string | null): Promise<Line> {
  const [, id] = /^[a-z0-9]{12}\/(proxy_.+)$/.exec(name ?? '') ?? [];
  assert.ok(id !== undefined, `a response names its receipt, not ${name}`);
  return until(() => linesIn(directory).find((line) => line.id === id));
}

async function until<T>(find: () => T | undefined): Promise<T> {
  for (let i = 0; i < 1000; i++) {
    const found = find();
    if (found !== undefined) return found;
    await delay(10);
  }
  assert.fail('it did not come to that');
}

const chat = (model: string, more: object = {}): string =>
  JSON.stringify({
    model,
    messages: [{ role: 'user', content: 'a prompt that is nowhere in a receipt' }],
    ...more,
  });

describe('receipts', { timeout: 60_000 }, () => {
  let stack: Stack;
  let directory: string;
  before(async () => {
    stack = await startStack({ flags: ['--receipts', '--min-upload-rate=0'] });
    directory = join(stack.directory, 'workspace/receipts');
  });
  after(() => stack.close());

  const post = (path: string, body: string) =>
    fetch(`${stack.url}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });

  /** What is the same in the receipts of all requests that were answered under the epoch of now. */
  const epoch = () => {
    const { secretId, manifestSha256, verdictSha256 } = stack.proxy.session.current() ?? {};
    return { secretId, manifestSha256, verdictSha256 };
  };

  it('say of a whole answer what was asked and what was answered, by digest', async () => {
    const body = chat('sim-echo');
    const response = await post('/v1/chat/completions', body);
    const answer = Buffer.from(await response.arrayBuffer());
    const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
    assert.equal(line['id'], response.headers.get('privatemode-proxy-request-id'));
    const { time, durationMs, tokens, ...rest } = line;
    assert.ok(Math.abs(Date.parse(time as string) - Date.now()) < 60_000 && (durationMs as number) >= 0);
    assert.ok((tokens as { out: number }).out > 0);
    const { v, instance, seq, prev, sig, id, ...said } = rest;
    assert.deepEqual([v, typeof seq, (sig as string).length, (prev as string).length], [1, 'number', 88, 64]);
    assert.ok(id !== '' && instance !== '');
    assert.deepEqual(said, {
      ...{ type: 'request', endpoint: 'chat', client: null, model: 'sim-echo', status: 200 },
      request: { sha256: sha256(body), bytes: body.length },
      response: { sha256: sha256(answer), bytes: answer.length, events: 0 },
      ...{ epoch: epoch(), outcome: 'complete', code: null },
    });
  });

  it('say the same of a stream, with its events', async () => {
    const body = chat('sim-20', { stream: true });
    const response = await post('/v1/chat/completions', body);
    const answer = Buffer.from(await response.arrayBuffer());
    const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
    assert.deepEqual([line['outcome'], line['code'], line['epoch']], ['complete', null, epoch()]);
    const { events, ...digest } = line['response'] as { events: number };
    assert.deepEqual(digest, { sha256: sha256(answer), bytes: answer.length });
    assert.equal(events, answer.toString().match(/^data: /gm)?.length);
  });

  const ENDINGS: readonly {
    readonly what: string;
    readonly path?: string;
    readonly body: string;
    readonly receipt: object;
  }[] = [
    {
      what: 'a request that is wrong',
      body: '{"model":',
      receipt: {
        endpoint: 'chat',
        status: 400,
        outcome: 'refused',
        code: 'invalid_json',
        epoch: null,
        model: null,
      },
    },
    {
      what: 'a path that does not exist',
      ...{ path: '/v1/nothing', body: '{}' },
      receipt: { endpoint: null, status: 404, outcome: 'refused', code: 'unknown_path', request: NOTHING },
    },
    {
      what: 'an estimate of tokens',
      ...{ path: '/v1/messages/count_tokens', body: chat('m') },
      receipt: { endpoint: 'count_tokens', status: 200, outcome: 'complete', epoch: null },
    },
    {
      what: 'an error of the service',
      body: chat('sim-20+fault=status:503'),
      receipt: { endpoint: 'chat', status: 503, outcome: 'failed' },
    },
    {
      what: 'an answer that does not authenticate',
      body: chat('sim-20+fault=flip_tag:3', { stream: true }),
      receipt: { status: 200, outcome: 'truncated', code: 'response_not_authentic' },
    },
  ];
  for (const { what, path = '/v1/chat/completions', body, receipt } of ENDINGS) {
    it(`say how it ended: ${what}`, async () => {
      const response = await post(path, body);
      await response.text().catch(() => {});
      const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
      for (const [member, value] of Object.entries(receipt)) assert.deepEqual(line[member], value, member);
    });
  }

  it('say of an answer that the client did not wait for how much of it was delivered', async () => {
    const control = new AbortController();
    const response = await fetch(`${stack.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: chat('sim-100x20', { stream: true }),
      signal: control.signal,
    });
    const reader = response.body?.getReader();
    await reader?.read();
    control.abort();
    const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
    assert.deepEqual([line['outcome'], line['status'], line['code']], ['aborted', 200, null]);
    assert.ok((line['response'] as { bytes: number }).bytes > 0);
  });

  it('count of an upload that is cut off what had arrived', async () => {
    const known = linesIn(directory).length;
    const request = httpRequest(`${stack.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': 1000 },
    });
    request.on('error', () => {});
    request.write('{"model"');
    await until(() => (stack.proxy.counters.bufferedBytes > 0 ? true : undefined));
    await delay(20);
    request.destroy();
    const line = await until(() => linesIn(directory)[known]);
    assert.deepEqual(
      [line['outcome'], line['request']],
      ['aborted', { sha256: sha256('{"model"'), bytes: 8 }],
    );
  });

  it('name the epoch of the second attempt where the first secret was forgotten', async () => {
    const before = epoch();
    stack.simulator.secrets.dropAll();
    const response = await post('/v1/chat/completions', chat('sim-echo'));
    await response.text();
    const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
    assert.notEqual(line.epoch?.secretId, before.secretId);
    assert.notEqual(line.epoch?.verdictSha256, before.verdictSha256);
    assert.deepEqual(line.epoch, epoch());
    assert.equal(line.epoch?.secretId, response.headers.get('privatemode-proxy-secret-id'));
  });

  it('are not written of what the proxy says about itself', async () => {
    const known = linesIn(directory).length;
    for (const path of ['/healthz', '/readyz', '/v1', '/']) {
      const response = await fetch(`${stack.url}${path}`);
      assert.equal(response.headers.get('privatemode-proxy-receipt'), null, path);
    }
    await delay(600);
    assert.equal(linesIn(directory).length, known);
  });

  it('hold, and hold nothing of a prompt or an answer', async () => {
    const { ok, findings, requests } = await checkReceipts(directory);
    assert.deepEqual(
      [ok, findings.map(({ kind }) => kind), requests],
      [true, ['gap'], requestsIn(directory).length],
    );
    const text = JSON.stringify(linesIn(directory));
    assert.ok(!text.includes('a prompt that is nowhere') && !text.includes('content'));
    const out: string[] = [];
    const io = { stdout: { write: (part: string) => out.push(part) }, stderr: { write: () => {} } };
    assert.equal(await main(['receipts', 'verify', '--dir', directory], {}, io), 0);
    assert.match(out.join(''), /✓ Every signature, chain and verdict holds\.\n$/);
  });

  it('can be checked with the commands of docs/receipts.md', () => {
    const page = readFileSync(new URL('../../docs/receipts.md', import.meta.url), 'utf8');
    const [, commands] = /## With standard tools only\n[\s\S]*?```sh\n([\s\S]*?)```/.exec(page) ?? [];
    const cwd = join(directory, '..');
    const run = (script: string) =>
      execFileSync('bash', ['-euo', 'pipefail', '-c', script], { cwd, encoding: 'utf8', stdio: 'pipe' });
    assert.match(run(commands ?? 'false'), /Signature Verified Successfully/);
    // A line with another model in it: the same commands must refuse it.
    const falsified = commands?.replace("| tr -d '\\n'; }", "| tr -d '\\n' | sed s/sim-/other-/; }");
    assert.notEqual(falsified, commands);
    assert.throws(() => run(falsified ?? 'true'));
  });
});

describe('receipts of several workers', { timeout: 60_000 }, () => {
  it('stand in one chain, through a worker that is killed and to the last request of a drain', async () => {
    const stack = await startStack();
    const workspace = join(stack.directory, 'of-workers');
    const proxy = await startProxyProcess(
      [
        '--workers=2',
        '--receipts',
        '--api-key=some-key',
        `--api-endpoint=localhost:${stack.simulator.port}`,
        `--manifest-path=${join(stack.directory, 'manifest.json')}`,
        `--unsafe-trust-roots=${join(stack.directory, 'roots')}`,
        `--workspace=${workspace}`,
        ...['--listen-address=127.0.0.1', '--port=0'],
      ],
      { SSL_CERT_FILE: join(stack.directory, 'ca.pem') },
    );
    try {
      const ask = (model: string, stream = false) =>
        fetch(`${proxy.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', connection: 'close' },
          body: chat(model, { stream }),
        });
      await Promise.all(Array.from({ length: 10 }, async () => (await ask('sim-echo')).text()));
      // A worker hands over a receipt after its answer: what it still held when it was killed is not written.
      const directory = join(workspace, 'receipts');
      await until(() => (requestsIn(directory).length === 10 ? true : undefined));
      const [victim] = proxy.children();
      process.kill(victim as number, 'SIGKILL');
      await until(() => (proxy.log().includes('A worker ended') ? true : undefined));
      // A connection that was handed to the worker in the moment in which it died is lost.
      let last: Response | undefined;
      for (let i = 0; last === undefined && i < 50; i++) {
        last = await ask('sim-20x30', true).catch(() => delay(100, undefined));
      }
      assert.ok(last !== undefined, 'the proxy answers again');
      const stopped = proxy.stop('SIGTERM');
      await last.text();
      assert.equal(await stopped, 0);
      const report = await checkReceipts(directory);
      assert.deepEqual([report.ok, report.instances, report.requests], [true, 1, 11]);
      assert.deepEqual(
        report.findings.map(({ message }) => message),
        ['an unknown number of receipts before this line were not written'],
      );
      assert.equal(linesIn(directory).at(-1)?.type, 'closed');
      assert.match(proxy.log(), /Each request gets a receipt, signed with this key/);
    } finally {
      await proxy.stop('SIGKILL');
      await stack.close();
    }
  });
});
