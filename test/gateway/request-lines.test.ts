/** Each request leaves one line in the log at level info, when it is over, and the line says how it ended. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { pathForLog } from '../../lib/gateway/end-of-request.ts';
import type { TestGateway } from '../support/doors/gateway.ts';
import { chatBody, type Fixture, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { saying } from '../support/remote/scripted-upstream.ts';
import { chatStream, completion, plainError } from '../support/remote/sealed-answers.ts';

type Line = Readonly<Record<string, unknown>>;

const STREAMING = chatBody({ stream: true });
const CHAT = { method: 'POST', path: '/v1/chat/completions' };

const parsed = ({ logLines }: TestGateway): Line[] => logLines.map((line) => JSON.parse(line) as Line);
const atInfo = (gateway: TestGateway): Line[] => parsed(gateway).filter(({ level }) => level === 'INFO');

/**
 * The lines at level info once there are that many; without the times, of which it is asserted that they are
 * such.
 */
async function linesAtInfo(gateway: TestGateway, count = 1): Promise<Line[]> {
  await eventually('the line in the log', () => atInfo(gateway).length >= count && gateway.active() === 0);
  assert.ok(
    atInfo(gateway).every(({ msg }) => /^(Request ended|Waiting for)/.test(String(msg))),
    'another line at info',
  );
  const ended = atInfo(gateway).filter(({ msg }) => msg === 'Request ended');
  for (const failed of parsed(gateway).filter(({ msg }) => msg === 'Request failed')) {
    const end = ended.find(({ requestId }) => requestId === failed['requestId']);
    assert.equal(failed['status'], end?.['status'], 'both lines have the status that the client got');
  }
  return ended.map(({ time, level, requestId, durationMs, ...line }) => {
    assert.match(String(requestId), /^proxy_[0-9a-f-]{36}$/);
    assert.ok(Number.isInteger(durationMs) && (durationMs as number) >= 0, `durationMs ${durationMs}`);
    const { receivedMs, sentMs, firstTokenMs, ...rest } = line;
    for (const ms of [receivedMs, sentMs])
      assert.ok(ms === undefined || (ms as number) <= (durationMs as number));
    if (firstTokenMs === undefined) return rest;
    assert.ok((firstTokenMs as number) >= 0 && (firstTokenMs as number) <= (durationMs as number));
    return { ...rest, firstTokenMs: true };
  });
}

type Scene = readonly [
  name: string,
  line: Line,
  play: (fixture: Fixture) => Promise<unknown>,
  options?: Parameters<typeof gatewayFixture>[1],
];

const refused = (status: number, code: string, reason: string, more: Line = {}): Line => ({
  ...{ ...CHAT, outcome: 'refused', status, code, reason },
  ...more,
});

const WHOLE = { ...CHAT, outcome: 'answered', status: 200, model: 'm' };
const STREAMED = { ...WHOLE, firstTokenMs: true, tokensIn: 3, tokensOut: 1 };
const FOREIGN = 'a web page of another origin asked; --cors-allowed-origins does not list it';

const SCENES: readonly Scene[] = [
  ['a whole response', WHOLE, ({ ask }) => ask(post()), { answers: completion }],
  ['a stream', STREAMED, ({ ask }) => ask(post(STREAMING)), { answers: chatStream }],
  [
    'a body that is no JSON',
    refused(400, 'invalid_json', 'the body is not valid JSON: unexpected end at offset 1'),
    ({ ask }) => ask(post('{')),
  ],
  [
    'a web page of another origin, which is quoted only if a browser could have written it',
    refused(403, 'origin_forbidden', FOREIGN, { origin: 'unknown' }),
    ({ ask }) => ask(post('{}', { headers: ['Origin: https://evil.example/a-secret'] })),
  ],
  [
    'a body that is too large, even if the client leaves while it reads the refusal',
    refused(413, 'body_too_large', 'the body is larger than 1048576 bytes (--max-body-bytes)'),
    async ({ sending }) => {
      const asking = sending(post('{', { headers: ['Content-Length: 99999999'] }));
      await asking.until(/\r\n\r\n/);
      asking.socket.destroy();
    },
  ],
];

describe('the line of a request', { concurrency: true, timeout: 600_000 }, () => {
  for (const [name, line, play, options] of SCENES) {
    it(`tells of ${name}`, async (t) => {
      const fixture = await gatewayFixture(t, options);
      await play(fixture);
      assert.deepEqual(await linesAtInfo(fixture.gateway), [{ msg: 'Request ended', ...line }]);
    });
  }

  it('is at level debug if a probe asked about the proxy itself', async (t) => {
    const { gateway, ask } = await gatewayFixture(t);
    for (const path of ['/healthz', '/readyz', '/']) await ask(get(path));
    await eventually('the lines in the log', () => gateway.logLines.length === 3);
    assert.deepEqual(
      parsed(gateway).map(({ level, path, outcome }) => [level, path, outcome]),
      ['/healthz', '/readyz', '/'].map((path) => ['DEBUG', path, 'answered']),
    );
  });
});

describe('the path in the line of a request that was refused', () => {
  const paths: [target: string, path: string][] = [
    ['/v1/chat/completions?key=a-secret', '/v1/chat/completions'],
    ['/v1/v1//models/gpt', '/v1/models/{id}'],
    ['/unstructured/general/v0/general', '/unstructured/*'],
    ['/v1/responses/resp_1', '/v1/*'],
    ['/readyz', '/readyz'],
    ['/v1/a-secret', '/v1/*'],
    ['/sk-a-secret', 'unknown'],
    ['/0123456789abcdef', 'unknown'],
    ['/averylongwordthatcouldbeasecret', 'unknown'],
    ['/%61/x', 'unknown'],
    ['/../v1', 'unknown'],
    ['*', 'unknown'],
    ['http://a-secret/v1/models', 'unknown'],
    ['', 'unknown'],
  ];
  it('quotes nothing that a client made up', () => {
    for (const [target, path] of paths) assert.equal(pathForLog(target), path, target);
  });
});

it('docs/operating.md documents the field names in the lines of a request', async (t) => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/operating.md'), 'utf8');
  const [, fields = ''] = /^### Fields\n([\s\S]*?)^#/m.exec(page) ?? [];
  const cells = [...fields.matchAll(/^\| ([^|]+) \|/gm)].map(([, cell]) => cell as string);
  const documented = new Set(cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name)));
  assert.ok(documented.size > 15, `${documented.size} names`);
  const { upstream, gateway, ask } = await gatewayFixture(t);
  upstream.on(saying(plainError(500, 'no secret for ID')), (scripted) => scripted.end(), saying(chatStream));
  await ask(post());
  await ask(post(STREAMING, { headers: ['X-Request-Id: mine'] }));
  await ask(post('{'));
  await ask(post('{}', { headers: ['Origin: https://evil.example'], path: '/v1/chat/completions?a=b' }));
  await linesAtInfo(gateway, 4);
  const names = new Set(parsed(gateway).flatMap((line) => Object.keys(line)));
  assert.deepEqual(
    [...names].filter((name) => !documented.has(name)),
    [],
  );
});
