/**
 * `responsesApi`: POST /v1/responses of the library. Those of the gateway run through the library, too
 * (test/suites.ts).
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { createPrivatemodeFetch, type PrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { PrivatemodeAI } from '../../lib/client-library/index.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { OPENAI_CLIENTS } from '../applications/versions.ts';
import { clientOptions } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const PROMPT = 'prompt-of-a-response-5e81';
const TOOL = { type: 'function', name: 'read', parameters: { type: 'object' }, strict: false } as const;
const URL = 'https://any.invalid/v1/responses';

/** A fetch that must not be used. */
const nothing = (): never => assert.fail('something was sent');

describe('the Responses API of the library', { timeout: 600_000 }, () => {
  let simulator: Simulator;
  let base: ReturnType<typeof clientOptions>;
  let client: PrivatemodeAI;
  let below: PrivatemodeFetch;
  before(async () => {
    simulator = await startTestSimulator({ apiKey: 'library-key' });
    base = clientOptions(simulator);
    const { network: _, ...deployment } = base;
    const options = { ...deployment, responsesApi: true, streamIdleTimeout: 1_000 };
    client = new PrivatemodeAI({ ...options, maxRetries: 0 });
    below = createPrivatemodeFetch(options);
  });
  after(async () => {
    client.close();
    below.close();
    await base.network.destroy();
    await simulator.close();
  });
  afterEach(() => {
    assert.deepEqual(simulator.exchanges.violations(), []);
    assert.equal(simulator.recorder.containing(PROMPT).length, 0);
  });

  const post = (body: object, init: RequestInit = {}): Promise<Response> =>
    below(URL, {
      method: 'POST',
      body: JSON.stringify({ model: 'sim-echo', input: PROMPT, ...body }),
      ...init,
    });

  /** What comes of a body before it fails, and why it does; `seen` gets the text so far with each piece. */
  async function broken(
    { body }: Response,
    seen: (text: string) => void = () => {},
  ): Promise<{ text: string; reason: unknown }> {
    const decoder = new TextDecoder();
    let text = '';
    try {
      for await (const piece of body!) {
        text += decoder.decode(piece, { stream: true });
        seen(text);
      }
    } catch (reason) {
      return { text, reason };
    }
    return assert.fail(`the body ended well: ${text}`);
  }

  it('answers both majors of the OpenAI client, whole and streamed, and a copy of the client', async () => {
    const others = Object.values(OPENAI_CLIENTS).map(
      (OpenAI) => new OpenAI({ apiKey: 'unused', fetch: below }),
    );
    for (const { responses } of [client, client.withOptions({ timeout: 20_000 }), ...others]) {
      const asked = { model: 'sim-echo', input: PROMPT };
      const whole = await responses.create(asked);
      assert.deepEqual([whole.status, whole.output_text.trim()], ['completed', PROMPT]);
      const streamed = await responses.stream(asked).finalResponse();
      assert.deepEqual([streamed.status, streamed.output_text.trim()], ['completed', PROMPT]);
    }
    const { headers } = await post({ stream: true });
    assert.equal(headers.get('content-type'), 'text/event-stream');
    assert.equal(headers.get('privatemode-proxy-secret-id'), below.protection()?.secretId);
  });

  it('lets the model call a tool, takes the tool output back, and names left-out hosted tools in a header', async () => {
    const asked = { model: 'sim-tools', tools: [TOOL, { type: 'web_search' as const }] };
    const question = { role: 'user', content: PROMPT } as const;
    const { data, response } = await client.responses.create({ ...asked, input: [question] }).withResponse();
    assert.equal(response.headers.get('privatemode-proxy-tools-left-out'), 'web_search');
    const call = data.output.find((item) => item.type === 'function_call');
    assert.equal(call?.name, 'read');
    const result = { type: 'function_call_output', call_id: call.call_id, output: 'done' } as const;
    const second = await client.responses.create({ ...asked, input: [question, call, result] });
    assert.deepEqual(
      second.output.map(({ type }) => type),
      ['message'],
    );
  });

  for (const [fault, code] of [
    ['truncate:4', 'stream_unfinished'],
    ['missing_terminal', 'stream_unfinished'],
    ['flip_tag:2', 'response_not_authentic'],
    ['stall_mid:4', 'stream_idle_timeout'],
    ['error_event:2', 'stream_unfinished'],
  ] as const) {
    it(`ends a stream under the fault ${fault} with response.failed and an error, and completes no tool call`, async () => {
      const response = await post({ model: `sim-tools+fault=${fault}`, tools: [TOOL], stream: true });
      assert.equal(response.status, 200);
      const { text, reason } = await broken(response);
      assert.equal((reason as { code?: string }).code, code);
      assert.doesNotMatch(text, /response\.(?:output_item\.done|completed|incomplete)|--/);
      const [, failed = '{}'] = /event: response\.failed\ndata: (.*)\n\n(?::\n\n)?$/.exec(text) ?? [];
      const told = JSON.parse(failed).response;
      assert.deepEqual([told?.status, told?.output], ['failed', []]);
      if (fault !== 'error_event:2')
        assert.ok(told.error.message.startsWith(`${code}: `), told.error.message);
    });
  }

  it('ends a stream with the abort reason of the application, and the service sees the stream end', async () => {
    const left = new AbortController();
    const response = await post({ model: 'sim-1000x20', stream: true }, { signal: left.signal });
    const reason = new Error('enough');
    const ended = await broken(response, (text) => {
      if (text.includes('response.output_text.delta')) left.abort(reason);
    });
    assert.equal(ended.reason, reason);
    assert.doesNotMatch(ended.text, /response\.failed/);
    await eventually('the end at the service', () => simulator.exchanges.inFlight() === 0);
  });

  it('refuses members that cannot be translated, names them in a JSON error, and sends nothing', async () => {
    const sent = simulator.counts['inference'];
    for (const param of ['background', 'no_such_member']) {
      const accept = { headers: { accept: 'text/event-stream' } };
      const response = await post({ stream: true, [param]: true }, accept);
      const { error } = (await response.json()) as { error: Record<string, string> };
      assert.deepEqual(
        [response.status, error['code'], error['param']],
        [400, 'unsupported_parameter', param],
      );
    }
    assert.equal((await below(URL, { method: 'POST', body: '{' })).status, 400);
    for (const [method, path] of Object.entries({
      GET: '/resp_1',
      DELETE: '/resp_1',
      POST: '/resp_1/cancel',
    })) {
      const response = await below(`${URL}${path}`, { method });
      assert.equal(response.status, 404, path);
      assert.match(await response.text(), /no such endpoint.*POST \/v1\/responses/);
    }
    assert.equal(simulator.counts['inference'], sent);
  });

  it('passes on the status 429 of the service', async () => {
    await assert.rejects(client.responses.create({ model: 'sim-error-429', input: PROMPT }), { status: 429 });
  });

  it('is refused without the option responsesApi, which the error names, and nothing is sent', async () => {
    const without = new PrivatemodeAI({ apiKey: 'k', fetch: nothing as never });
    const refused = {
      status: 400,
      code: 'not_supported',
      message:
        /no Responses API\. Set the option responsesApi to true, .* client\.chat\.completions\.create\(\)/,
    };
    for (const asking of [
      () => without.responses.create({ model: 'm', input: PROMPT }),
      () => without.responses.stream({ model: 'm', input: PROMPT }).finalResponse(),
    ]) {
      await assert.rejects(asking, refused);
      await assert.rejects(asking, ({ message }: Error) => !/--|proxy|AI SDK|Codex|docs\//.test(message));
    }
    without.close();
    for (const make of [createPrivatemodeFetch, (options: object) => new PrivatemodeAI(options)]) {
      const options = { apiKey: 'k', responsesApi: 'yes' as never, fetch: nothing as never };
      const message = 'responsesApi is not true or false: give one of them, without quotes';
      assert.throws(() => make(options), { code: 'config_invalid', message });
    }
  });
});
