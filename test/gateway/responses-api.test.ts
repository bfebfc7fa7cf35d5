/** POST /v1/responses with --responses-api, through the whole program to the simulated service. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { answerTo, CANARY, codeOf, get } from '../support/doors/gateway-fixture.ts';
import { DOOR, proxyAlone } from '../support/doors/library-door.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

interface Receipt {
  readonly id: string;
  readonly endpoint: string;
  readonly outcome: string;
  readonly code: string | null;
  readonly request: { readonly sha256: string } | undefined;
  readonly response: { readonly events: number };
}

const PROMPT = `${CANARY} hello there`;
const TOOL = {
  type: 'function',
  name: 'read_file',
  parameters: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
  strict: false,
} as const;

describe('POST /v1/responses', { timeout: 600_000 }, () => {
  let stack: Stack;
  let admin: string;
  before(async () => {
    admin = `127.0.0.1:${await freePort()}`;
    stack = await startStack({ flags: ['--responses-api', '--receipts', `--admin-address=${admin}`] });
  });
  after(() => stack.close());
  afterEach(() => {
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    assert.equal(stack.simulator.recorder.containing(CANARY).length, 0);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });

  const post = (body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${stack.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });

  /** The first receipt of that kind, as soon as it is written. */
  const receiptOf = (isIt: (receipt: Receipt) => boolean): Promise<Receipt> => {
    const directory = join(stack.directory, 'workspace/receipts');
    return eventually('a receipt', () =>
      readdirSync(directory)
        .filter((name) => name.endsWith('.jsonl'))
        .flatMap((name) => readFileSync(join(directory, name), 'utf8').split('\n').slice(0, -1))
        .map((line) => JSON.parse(line) as Receipt)
        .find(isIt),
    );
  };

  it('answers with a whole body and its Content-Length, and is an endpoint of its own in log, metrics and receipts', {
    skip: proxyAlone('counters'),
  }, async () => {
    const asked = JSON.stringify({ model: 'sim-echo', input: PROMPT, store: true });
    const response = await post(asked);
    const text = await response.text();
    assert.equal(response.headers.get('content-length'), String(Buffer.byteLength(text)));
    const { object, status, output, store } = JSON.parse(text);
    assert.deepEqual([object, status, store], ['response', 'completed', false]);
    assert.equal(output[0].content[0].text.trim(), PROMPT);
    const id = response.headers.get('privatemode-proxy-request-id') as string;
    assert.ok(stack.logLines.some((line) => line.includes(id) && line.includes('"path":"/v1/responses"')));
    const digest = createHash('sha256').update(asked).digest('hex');
    assert.equal((await receiptOf(({ request }) => request?.sha256 === digest)).endpoint, 'responses');
    const metrics = await fetch(`http://${admin}/metrics`, { headers: { connection: 'close' } });
    assert.match(await metrics.text(), /requests_total\{route="responses",method="POST",code="200"/);
  });

  /** What comes of a stream, whether or not its connection is broken. */
  async function textOf({ body }: Response): Promise<{ text: string; isBroken: boolean }> {
    let text = '';
    const decoder = new TextDecoder();
    try {
      for await (const piece of body!) text += decoder.decode(piece, { stream: true });
    } catch {
      return { text, isBroken: true };
    }
    return { text, isBroken: false };
  }

  type End = readonly [fault: string, outcome: string, inReceipt: string, code: string | null];
  const ENDS: readonly End[] = [
    ['error_event:2', 'service_error', 'failed', null],
    ['flip_tag:2', 'broken_off', 'truncated', 'response_not_authentic'],
    ['truncate:4', 'broken_off', 'truncated', 'stream_unfinished'],
  ];
  for (const [fault, outcome, inReceipt, code] of ENDS) {
    it(`completes no tool call of a stream with the fault ${fault}, and breaks the connection to the client, as log and receipt say`, async () => {
      const model = `sim-tools+fault=${fault}`;
      const response = await post({ model, input: PROMPT, tools: [TOOL], stream: true });
      assert.equal(response.status, 200);
      const { text, isBroken } = await textOf(response);
      assert.ok(isBroken);
      assert.doesNotMatch(text, /response\.(?:output_item\.done|completed|incomplete)/);
      assert.match(text, /event: response\.failed\ndata: \{[^\n]*"status":"failed"[^\n]*\n\n$/);
      if (DOOR === 'library') return;
      const id = response.headers.get('privatemode-proxy-request-id') as string;
      const line = await eventually('its line', () =>
        stack.logLines.find((each) => each.includes(id) && each.includes('Request ended')),
      );
      assert.ok(line.includes(`"outcome":"${outcome}"`), line);
      const failed = stack.logLines.some((each) => each.includes(id) && each.includes('Request failed'));
      assert.equal(failed, code !== null);
      const receipt = await receiptOf((each) => each.id === id);
      assert.deepEqual(
        [receipt.outcome, receipt.code, receipt.response.events],
        [inReceipt, code, text.match(/^data: /gm)?.length],
      );
    });
  }

  it('gives a 400 that names the member that cannot be translated, as JSON even to a client that accepts events', async () => {
    const before = stack.simulator.counts['inference'];
    const refused = await post(
      { model: 'sim-echo', input: PROMPT, previous_response_id: 'resp_1' },
      { accept: 'text/event-stream' },
    );
    const { error } = (await refused.json()) as { error: Record<string, unknown> };
    assert.deepEqual(
      [refused.status, error['type'], error['param'], error['code']],
      [400, 'invalid_request_error', 'previous_response_id', 'unsupported_parameter'],
    );
    assert.equal(refused.headers.get('privatemode-proxy-error'), 'not_supported');
    assert.equal((await post('{')).headers.get('privatemode-proxy-error'), 'invalid_json');
    assert.equal((await post({ input: PROMPT })).headers.get('privatemode-proxy-error'), 'missing_model');
    assert.equal(stack.simulator.counts['inference'], before);
  });

  it('leaves hosted tools out, and names them in a header and the log, unknown ones as "other"', async () => {
    const tools = [{ type: 'web_search' }, { type: CANARY }, TOOL];
    const response = await post({ model: 'sim-echo', input: PROMPT, tools });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('privatemode-proxy-tools-left-out'), 'web_search, other');
    await response.text();
    if (DOOR === 'proxy')
      assert.ok(stack.logLines.some((line) => line.includes('"toolsLeftOut":"web_search, other"')));
  });

  it('answers 426 to a WebSocket, and says to send it over HTTP', {
    skip: proxyAlone('listener'),
  }, async (t) => {
    const headers = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'];
    for (const [path, status] of [
      ['/v1/responses', 426],
      ['/v1/chat/completions', 405],
    ] as const) {
      const client = rawClient(Number(new URL(stack.url).port));
      t.after(() => client.socket.destroy());
      client.send(get(path, headers));
      const answer = await answerTo(client);
      assert.equal(answer.status, status);
      if (status === 405) continue;
      assert.deepEqual([codeOf(answer), answer.headers['upgrade']], ['websocket_unsupported', 'HTTP/1.1']);
      assert.match(answer.body, /Send POST \/v1\/responses over HTTP/);
    }
  });
});
