/**
 * `responsesApi`: POST /v1/responses of the library. Those of the gateway run through the library, too
 * (test/suites.ts).
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { createPrivatemodeFetch, type PrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { PrivatemodeAI } from '../../lib/client-library/index.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOptions } from '../support/doors/library-door.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const PROMPT = 'prompt-of-a-response-5e81';
const TOOL = { type: 'function', name: 'read', parameters: { type: 'object' }, strict: false } as const;

describe('the Responses API of the library', { timeout: 600_000 }, () => {
  let simulator: Simulator;
  let network: ReturnType<typeof clientOptions>['network'];
  let below: PrivatemodeFetch;
  let client: PrivatemodeAI;
  before(async () => {
    simulator = await startTestSimulator({ apiKey: 'library-key' });
    const { network: used, ...deployment } = clientOptions(simulator);
    network = used;
    below = createPrivatemodeFetch({ ...deployment, responsesApi: true, streamIdleTimeout: 1_000 });
    client = new PrivatemodeAI({ fetch: below, maxRetries: 0 });
  });
  after(async () => {
    below.close();
    await network.destroy();
    await simulator.close();
  });
  afterEach(() => {
    assert.deepEqual(simulator.exchanges.violations(), []);
    assert.equal(simulator.recorder.containing(PROMPT).length, 0);
  });

  it('answers the OpenAI client, whole and streamed, and names left-out hosted tools in a header', async () => {
    const asked = { model: 'sim-echo', input: PROMPT, tools: [{ type: 'web_search' as const }] };
    const { data, response } = await client.responses.create(asked).withResponse();
    assert.deepEqual([data.status, data.output_text.trim()], ['completed', PROMPT]);
    assert.equal(response.headers.get('privatemode-proxy-tools-left-out'), 'web_search');
    assert.equal(response.headers.get('privatemode-proxy-secret-id'), below.protection()?.secretId);
    const streamed = await client.responses.stream(asked).finalResponse();
    assert.deepEqual([streamed.status, streamed.output_text.trim()], ['completed', PROMPT]);
  });

  for (const [fault, code] of [
    ['truncate:4', 'stream_unfinished'],
    ['flip_tag:2', 'response_not_authentic'],
    ['stall_mid:4', 'stream_idle_timeout'],
  ] as const)
    it(`ends a stream under the fault ${fault} with response.failed and an error, and completes no tool call`, async () => {
      const asked = { model: `sim-tools+fault=${fault}`, input: PROMPT, tools: [TOOL], stream: true };
      const url = 'https://any.invalid/v1/responses';
      const { body } = await below(url, { method: 'POST', body: JSON.stringify(asked) });
      const decoder = new TextDecoder();
      let text = '';
      const read = async (): Promise<void> => {
        for await (const piece of body!) text += decoder.decode(piece, { stream: true });
      };
      await assert.rejects(read(), { code });
      assert.doesNotMatch(text, /response\.(?:output_item\.done|completed|incomplete)|--/);
      const [, failed = '{}'] = /event: response\.failed\ndata: (.*)\n\n(?::\n\n)?$/.exec(text) ?? [];
      const { status, output, error } = JSON.parse(failed).response;
      assert.deepEqual([status, output], ['failed', []]);
      assert.ok(error.message.startsWith(`${code}: `), error.message);
    });

  it('is refused without the option responsesApi, which the error names, and nothing is sent', async () => {
    const fetch = (): never => assert.fail('something was sent');
    const without = new PrivatemodeAI({ apiKey: 'k', fetch });
    await assert.rejects(without.responses.create({ model: 'm', input: PROMPT }), {
      status: 400,
      code: 'not_supported',
      message: /no Responses API\. Set the option responsesApi to true, .* client\.chat\.completions\.create/,
    });
    without.close();
  });
});
