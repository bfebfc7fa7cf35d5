import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync, hash } from 'node:crypto';
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { post as postOf } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { program } from '../support/processes/foreign-programs.ts';

const [JQ, OPENSSL] = [program('jq'), program('openssl')];

const NOTHING = { sha256: hash('sha256', ''), bytes: 0 };

interface Line {
  readonly [member: string]: unknown;
  readonly id: string;
  readonly type: string;
  readonly secretId: string | null;
}

/** All whole lines of all instances that lie in the directory now: one may be half written. */
const linesIn = (directory: string): Line[] =>
  readdirSync(directory)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(join(directory, name), 'utf8').split('\n').slice(0, -1))
    .map((line) => JSON.parse(line));

const requestsIn = (directory: string): Line[] => linesIn(directory).filter(({ type }) => type === 'request');

/** The receipt that a response names, once it is written. */
async function receiptOf(directory: string, name: string | null): Promise<Line> {
  const [, id] = /^[a-z0-9]{12}\/(proxy_.+)$/.exec(name ?? '') ?? [];
  assert.ok(id !== undefined, `a response names its receipt, not ${name}`);
  return eventually('the receipt', () => linesIn(directory).find((line) => line.id === id));
}

const chat = (model: string, more: object = {}): string =>
  JSON.stringify({
    model,
    messages: [{ role: 'user', content: 'a prompt that is nowhere in a receipt' }],
    ...more,
  });

describe('receipts', { timeout: 600_000 }, () => {
  let stack: Stack;
  let directory: string;
  before(async () => {
    stack = await startStack({ flags: ['--receipts'], times: { uploadSpan: 600_000 } });
    directory = join(stack.directory, 'workspace/receipts');
  });
  after(() => stack.close());

  const post = (path: string, body: string) =>
    fetch(`${stack.url}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });

  const secretId = () => stack.proxy.session.current()?.secretId as string;

  it('name digests of request and response, the secret (epoch) and the outcome of a whole response', async () => {
    const body = chat('sim-echo');
    const response = await post('/v1/chat/completions', body);
    const answer = Buffer.from(await response.arrayBuffer());
    const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
    assert.equal(line['id'], response.headers.get('privatemode-proxy-request-id'));
    const { time, durationMs, tokens, ...rest } = line;
    assert.ok(Math.abs(Date.parse(time as string) - Date.now()) < 60_000 && (durationMs as number) >= 0);
    assert.ok((tokens as { out: number }).out > 0);
    const { v, instance, seq, prev, sig, id, ...said } = rest;
    assert.deepEqual([v, typeof seq, (sig as string).length, (prev as string).length], [2, 'number', 88, 64]);
    assert.ok(id !== '' && instance !== '');
    assert.deepEqual(said, {
      ...{ type: 'request', endpoint: 'chat', client: null, model: 'sim-echo', status: 200 },
      request: { sha256: hash('sha256', body), bytes: body.length },
      response: { sha256: hash('sha256', answer), bytes: answer.length, events: 0 },
      ...{ secretId: secretId(), outcome: 'complete', code: null },
    });
  });

  it('name the digest of a streamed response and the number of its events, also if it is cut off', async () => {
    for (const [fault, outcome, code] of [
      ['', 'complete', null],
      ['+fault=flip_tag:3', 'truncated', 'response_not_authentic'],
    ] as const) {
      const response = await post('/v1/chat/completions', chat(`sim-20${fault}`, { stream: true }));
      let answer = '';
      const reading = async (): Promise<void> => {
        for await (const piece of response.body!) answer += Buffer.from(piece);
      };
      await (code === null ? reading() : assert.rejects(reading));
      const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
      assert.deepEqual([line['outcome'], line['code'], line['secretId']], [outcome, code, secretId()]);
      const { events, ...digest } = line['response'] as { events: number };
      assert.deepEqual(digest, { sha256: hash('sha256', answer), bytes: answer.length });
      assert.equal(events, answer.match(/^data: /gm)?.length);
    }
  });

  const CHAT = '/v1/chat/completions';
  const WRONG = { endpoint: 'chat', status: 400, outcome: 'refused', code: 'invalid_json' };
  const ESTIMATE = { endpoint: 'count_tokens', status: 200, outcome: 'complete', secretId: null };
  const UNAVAILABLE = { endpoint: 'chat', status: 503, outcome: 'failed' };
  const ENDINGS: [what: string, path: string, body: string, receipt: object][] = [
    ['a request that is wrong', CHAT, '{"model":', { ...WRONG, secretId: null, model: null }],
    ['a request without a body', CHAT, '', { ...WRONG, request: NOTHING }],
    ['an estimate of tokens', '/v1/messages/count_tokens', chat('m'), ESTIMATE],
    ['an error of the service', CHAT, chat('sim-20+fault=status:503'), UNAVAILABLE],
  ];
  it('say how a request ended', async () => {
    for (const [what, path, body, receipt] of ENDINGS) {
      const response = await post(path, body);
      await response.text();
      const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
      for (const [member, value] of Object.entries(receipt))
        assert.deepEqual(line[member], value, `${what}: ${member}`);
    }
  });

  it('have digest and size of the bytes that arrived if an upload is cut off', async () => {
    const known = linesIn(directory).length;
    const client = rawClient(Number(new URL(stack.url).port));
    client.send(postOf('{"model":"m"}').slice(0, -5));
    await eventually('the upload', () => stack.proxy.counters.bufferedBytes > 0);
    client.socket.destroy();
    const { outcome, request } = await eventually('the receipt', () => linesIn(directory)[known]);
    assert.deepEqual([outcome, request], ['aborted', { sha256: hash('sha256', '{"model"'), bytes: 8 }]);
  });

  it('name the secret of the second attempt if the service had forgotten the first one', async () => {
    const before = secretId();
    stack.simulator.secrets.dropAll();
    const response = await post('/v1/chat/completions', chat('sim-echo'));
    await response.text();
    const line = await receiptOf(directory, response.headers.get('privatemode-proxy-receipt'));
    assert.notEqual(line.secretId, before);
    assert.equal(line.secretId, response.headers.get('privatemode-proxy-secret-id'));
    const current = stack.proxy.session.current();
    const epoch = linesIn(directory).findLast(({ type }) => type === 'epoch');
    const next = await post('/v1/chat/completions', chat('sim-echo'));
    await next.text();
    await receiptOf(directory, next.headers.get('privatemode-proxy-receipt'));
    const last = linesIn(directory).findLast(({ type }) => type === 'epoch');
    assert.equal(last?.['sig'], epoch?.['sig'], 'once');
    assert.deepEqual(
      [epoch?.secretId, epoch?.['manifestSha256'], epoch?.['record'], epoch?.['roots']],
      [line.secretId, current?.manifestSha256, current?.exchangeSha256, 'custom'],
    );
  });

  it('are not written for /healthz, /readyz, /v1 and /, nor for a request that is not admitted', async () => {
    const known = linesIn(directory).length;
    for (const path of ['/healthz', '/readyz', '/v1', '/', '/v1/nothing']) {
      const response = await fetch(`${stack.url}${path}`);
      assert.equal(response.headers.get('privatemode-proxy-receipt'), null, path);
    }
    const response = await post('/v1/chat/completions', chat('sim-echo'));
    await response.text();
    await receiptOf(directory, response.headers.get('privatemode-proxy-receipt')); // lines keep their order
    assert.equal(linesIn(directory).length, known + 1);
  });

  it('hold when they are checked, and contain no text of a prompt or an answer', async () => {
    const { ok, findings, requests } = await checkReceipts(directory);
    assert.deepEqual([ok, findings.length, requests], [true, 1, requestsIn(directory).length]);
    assert.match(findings[0]?.message ?? '', /^is the last line: its instance runs still/);
    const text = JSON.stringify(linesIn(directory));
    assert.ok(!text.includes('a prompt that is nowhere') && !text.includes('content'));
  });

  describe('can be checked with the commands of docs/receipts.md, which', {
    skip: JQ.skip || OPENSSL.skip,
  }, () => {
    const page = readFileSync(new URL('../../docs/receipts.md', import.meta.url), 'utf8');
    const [, commands = 'false'] =
      /## With standard tools only\n[\s\S]*?```sh\n([\s\S]*?)```/.exec(page) ?? [];
    type Falsify = (copy: string) => void;
    /** Changes the files in a directory of the copy whose names end so. */
    const edited =
      (part: string, ending: string, change: (text: string) => string): Falsify =>
      (copy) => {
        for (const name of readdirSync(join(copy, part)).filter((name) => name.endsWith(ending)))
          writeFileSync(join(copy, part, name), change(readFileSync(join(copy, part, name), 'utf8')));
      };
    const lines = (change: (text: string) => string): Falsify => edited('receipts', '.jsonl', change);
    /** What the commands print on a falsified copy of the workspace; of each step, its first word. */
    function run(
      shell: string,
      falsify: Falsify = () => {},
      script = commands.replace('= vendor ]', '= custom ]'),
    ) {
      const copy = join(stack.directory, 'copy');
      rmSync(copy, { recursive: true, force: true });
      cpSync(join(directory, '..'), copy, { recursive: true });
      falsify(copy);
      const { status, stdout, stderr } = spawnSync(shell, ['-c', script], { cwd: copy, encoding: 'utf8' });
      return { status, steps: stdout.match(/^(?:OK|FAIL)(?= )/gm), stdout, stderr };
    }

    it('pick a request that was answered, and print OK for each step', () => {
      for (const shell of ['bash', 'sh']) {
        const { status, steps, stdout, stderr } = run(shell);
        assert.deepEqual([status, steps, stderr], [0, Array(8).fill('OK'), '']);
        const [, picked] = /^\{\n[\s\S]*?"id": "([\w-]+)"/.exec(stdout) ?? [];
        const line = requestsIn(directory).find(({ id }) => id === picked);
        assert.notEqual(line?.secretId ?? null, null, stdout);
      }
    });

    const otherKey = (): string =>
      generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }).toString();
    const FALSIFIED: [what: string, falsify: Falsify][] = [
      ['another key', edited('receipts', 'public.pem', otherKey)],
      ['a line that was changed', lines((text) => text.replaceAll('"sim-', '"other-'))],
      ['a line whose predecessor is missing', lines(withoutLineBeforeLast)],
      ['an epoch that was changed', lines((text) => text.replaceAll('"roots":"custom"', '"roots":"vendor"'))],
      ['a manifest that was changed', edited('manifests', '.json', (text) => `${text} `)],
      ['a record that was changed', edited('receipts/records', '.json', (text) => `${text} `)],
    ];
    for (const [step, [what, falsify]] of FALSIFIED.entries()) {
      it(`print FAIL for the step that finds ${what}`, () => {
        const { status, steps, stdout } = run('bash', falsify);
        assert.notEqual(status, 0);
        assert.equal(steps?.[step], 'FAIL', stdout);
        assert.deepEqual(steps?.slice(0, step), Array(step).fill('OK'), stdout);
      });
    }

    it('print FAIL for a verdict under the roots of a simulator, and if no encrypted request has a receipt', () => {
      const { status, steps } = run('bash', undefined, commands);
      assert.deepEqual([status, steps], [1, [...Array(7).fill('OK'), 'FAIL']]);
      const firstAlone = lines((text) => `${text.split('\n')[0]}\n`);
      const empty = run('bash', firstAlone);
      assert.notEqual(empty.status, 0);
      assert.match(empty.stdout, /^FAIL {2}no receipt of an encrypted request in /m);
    });
  });
});

/** Takes away the line in front of the last receipt of an encrypted request. */
function withoutLineBeforeLast(text: string): string {
  const lines = text.split('\n');
  const last = lines.findLastIndex((line) => /"type":"request".*"secretId":"/.test(line));
  return lines.toSpliced(last - 1, 1).join('\n');
}
