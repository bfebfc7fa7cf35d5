/**
 * The simulated models answer as docs/protocol/grammar.md says that honest servers do: every row, and nothing
 * else.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  askStream,
  askUnary,
  type DialectName,
  type InferenceServer,
  membersOf,
  startInference,
} from '../support/remote/inference-server.ts';
import { Attempt, call, goodHeaders, modelsHeaders, PLAIN } from '../support/remote/literal-client.ts';
import { breaches } from '../support/remote/transcripts/grammar.ts';
import type { Members, TranscriptEvent } from '../support/remote/transcripts/transcript.ts';

interface Chunk {
  readonly choices: readonly {
    readonly index: number;
    readonly text?: string;
    readonly delta?: { readonly content?: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage: { readonly completion_tokens: number };
}

const TOOLS = [{ type: 'function', function: { name: 'look_up', parameters: { properties: {} } } }];

/** Requests to the JSON endpoints; those that may stream are asked both ways. */
const REQUESTS: readonly {
  readonly what: string;
  readonly endpoint: DialectName;
  readonly model: string;
  readonly text: string;
  readonly more?: Members;
}[] = [
  { what: 'a chat', endpoint: 'chat', model: 'sim-5x0', text: 'x' },
  { what: 'a chat of no token', endpoint: 'chat', model: 'sim-0x0', text: 'x' },
  { what: 'a chat of n null', endpoint: 'chat', model: 'sim-2x0', text: 'x', more: { n: null } },
  { what: 'a chat of three choices', endpoint: 'chat', model: 'sim-echo', text: 'a b', more: { n: 3 } },
  { what: 'a tool call', endpoint: 'chat', model: 'sim-tools', text: 'x', more: { tools: TOOLS } },
  { what: 'two tool calls', endpoint: 'chat', model: 'sim-tools', text: 'x', more: { tools: TOOLS, n: 2 } },
  { what: 'a completion', endpoint: 'completions', model: 'sim-5x0', text: 'x' },
  { what: 'a completion of no token', endpoint: 'completions', model: 'sim-0x0', text: 'x' },
  {
    what: 'a completion of a batch',
    endpoint: 'completions',
    model: 'sim-echo',
    text: '',
    more: { prompt: ['a', '', 'c d e'], n: 2 },
  },
  {
    what: 'a completion of 255 prompts',
    endpoint: 'completions',
    model: 'sim-2x0',
    text: '',
    more: { prompt: Array.from({ length: 255 }, (_, index) => `p${index}`), max_tokens: 0, echo: true },
  },
  {
    what: 'a completion of token numbers',
    endpoint: 'completions',
    model: 'sim-echo',
    text: '',
    more: { prompt: [1, 2, 3] },
  },
  {
    what: 'a completion of embedded and written prompts',
    endpoint: 'completions',
    model: 'sim-2x0',
    text: '',
    more: { prompt: [[1], [2, 3]], prompt_embeds: 'AAAA' },
  },
  { what: 'a message', endpoint: 'messages', model: 'sim-5x0', text: 'x' },
  { what: 'a message of no token', endpoint: 'messages', model: 'sim-0x0', text: 'x' },
  {
    what: 'a message that uses a tool',
    endpoint: 'messages',
    model: 'sim-tools',
    text: 'x',
    more: { tools: [{ name: 'look_up', input_schema: {} }] },
  },
  { what: 'embeddings', endpoint: 'embeddings', model: 'm', text: 'x', more: { input: ['a', 'b'] } },
  { what: 'base64', endpoint: 'embeddings', model: 'm', text: 'x', more: { encoding_format: 'base64' } },
];

describe('simulated models', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(async () => {
    assert.deepEqual(server.exchanges.violations(), []);
    await server.close();
  });

  for (const { what, endpoint, model, text, more } of REQUESTS) {
    it(`answer ${what} as a whole as the grammar says`, async () => {
      const members = { ...membersOf(endpoint, model, text, false), ...more };
      const body = await askUnary<Members>(server, endpoint, members);
      assert.deepEqual(breaches(endpoint, members, { kind: 'whole', status: 200, body }), []);
    });
    if (endpoint === 'embeddings') continue;
    it(`answer ${what} in a stream as the grammar says`, async () => {
      const members = { ...membersOf(endpoint, model, text, true), ...more };
      const events = (await askStream<Members>(server, endpoint, members)) as TranscriptEvent[];
      assert.deepEqual(breaches(endpoint, members, { kind: 'stream', events }), []);
    });
  }

  it('answer an error as the grammar says', async () => {
    for (const endpoint of ['chat', 'completions', 'messages'] as const) {
      const members = membersOf(endpoint, 'sim-error-503', 'x', true);
      const body = await askUnary<Members>(server, endpoint, members, 503);
      assert.deepEqual(breaches(endpoint, members, { kind: 'whole', status: 503, body }), []);
    }
  });

  describe('a context window', () => {
    const asked = (endpoint: DialectName, model: string, words: number, output: number) => ({
      ...membersOf(endpoint, model, 'abc '.repeat(words), false),
      max_tokens: output,
    });
    interface Refused {
      readonly error: { readonly message: string };
    }

    it('is in the list of models if the model has one', async () => {
      const headers = modelsHeaders(server.port, server.secret);
      const { body } = await call({ port: server.port, method: 'GET', path: '/v1/models', headers });
      const { data } = JSON.parse(body.toString()) as { data: { id: string; max_model_len?: number }[] };
      assert.deepEqual(
        data
          .filter(({ id }) => /64k|128k|120b|echo/.test(id))
          .map(({ id, max_model_len }) => [id, max_model_len]),
        [
          ['gpt-oss-120b', 131_072],
          ['sim-echo', undefined],
          ['sim-64k', 65_536],
          ['sim-128k', 131_072],
        ],
      );
    });

    for (const endpoint of ['chat', 'messages'] as const) {
      it(`makes a model refuse longer input in ${endpoint}, with the message of vLLM, and answer input that fits`, async () => {
        await askUnary(server, endpoint, asked(endpoint, 'sim-64k', 30_000, 32_000));
        await askUnary(server, endpoint, asked(endpoint, 'sim-128k', 60_000, 32_000));
        const { error } = await askUnary<Refused>(
          server,
          endpoint,
          asked(endpoint, 'sim-64k', 40_000, 32_000),
          400,
        );
        assert.equal(
          error.message,
          "This model's maximum context length is 65536 tokens. However, you requested 32000 output tokens and your prompt contains at least 33537 input tokens, for a total of at least 65537 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=33537)",
        );
        const whole = await askUnary<Refused>(server, endpoint, asked(endpoint, 'sim-64k', 100, 65_536), 400);
        assert.match(whole.error.message, /^'max_tokens' or 'max_completion_tokens' is too large: 65536\. /);
        await askUnary(server, endpoint, asked(endpoint, 'gpt-oss-120b', 100, 200_000));
        const long = await askUnary<Refused>(
          server,
          endpoint,
          asked(endpoint, 'gpt-oss-120b', 140_000, 1),
          400,
        );
        assert.match(
          long.error.message,
          /^Input length \(1[45]\d{4}\) exceeds model's maximum context length \(131072\)\.$/,
        );
      });
    }
  });

  describe('several outputs', () => {
    const BATCH = { ...membersOf('completions', 'sim-echo', '', true), prompt: ['a b', 'c', ''], n: 2 };

    it('are numbered prompt by prompt, interleaved, and each have their own usage', async () => {
      const all = await askStream<Chunk>(server, 'completions', BATCH);
      const chunks = all.slice(0, -1).map(({ data }) => data);
      assert.deepEqual(
        chunks.map(({ choices: [choice], usage }) => [
          choice?.index,
          choice?.text,
          choice?.finish_reason,
          usage.completion_tokens,
        ]),
        [
          [4, '', 'stop', 0],
          [5, '', 'stop', 0],
          [0, 'a ', null, 1],
          [1, 'a ', null, 1],
          [2, 'c', null, 1],
          [2, '', 'stop', 1],
          [3, 'c', null, 1],
          [3, '', 'stop', 1],
          [0, 'b', null, 2],
          [0, '', 'stop', 2],
          [1, 'b', null, 2],
          [1, '', 'stop', 2],
          [undefined, undefined, undefined, 6],
        ],
      );
    });

    for (const n of [0, -1, 1.5, '2', 129]) {
      it(`are refused if n is ${JSON.stringify(n)}`, async () => {
        await askUnary(server, 'chat', { ...membersOf('chat', 'sim-1x0', 'x', false), n }, 400);
      });
    }
  });

  describe('transcriptions', () => {
    async function transcribe(fields: Record<string, string>) {
      const attempt = new Attempt(server.secret);
      const answer = await call({
        port: server.port,
        path: '/v1/audio/transcriptions',
        headers: {
          ...goodHeaders(server.port, server.secret, 'm'),
          'content-type': 'multipart/form-data; boundary=BOUNDARY',
        },
        body: attempt.sealForm(fields, Buffer.from('RIFF')),
      });
      return { attempt, answer, text: answer.body.toString() };
    }

    it('fail in formats that are not JSON: they cannot be encrypted', async () => {
      const { answer } = await transcribe({ model: 'm', response_format: 'srt' });
      assert.equal(answer.status, 500);
      assert.equal(answer.headers['privatemode-encrypted'], 'false');
    });

    it('are what the grammar says in a stream', async () => {
      const fields = { model: 'm', stream: 'true' };
      const { attempt, text } = await transcribe(fields);
      const events = attempt.openEvents(text, PLAIN.transcriptionAnswer) as unknown as TranscriptEvent[];
      assert.deepEqual(breaches('transcription', fields, { kind: 'stream', events }), []);
    });

    for (const more of [
      { response_format: 'json' },
      { response_format: 'text' },
      { response_format: 'verbose_json' },
      { response_format: 'verbose_json', 'timestamp_granularities[]': 'word' },
    ]) {
      it(`are what the grammar says as a whole answer in ${Object.values(more).join(' by the ')}`, async () => {
        const { attempt, text } = await transcribe({ model: 'm', ...more });
        const body = attempt.openValue(text, PLAIN.transcriptionAnswer) as { words?: unknown };
        assert.deepEqual(breaches('transcription', more, { kind: 'whole', status: 200, body }), []);
        if ('timestamp_granularities[]' in more) assert.ok(Array.isArray(body.words));
      });
    }
  });

  it('answer several files with the elements of one file after the other', async () => {
    const attempt = new Attempt(server.secret);
    const { 'privatemode-target-model': _, ...headers } = goodHeaders(server.port, server.secret, 'm');
    const part = (text: string) =>
      `--B\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n${text}\r\n`;
    const answer = await call({
      port: server.port,
      path: '/unstructured/general/v0/general',
      headers: { ...headers, 'content-type': 'multipart/form-data; boundary=B' },
      body: attempt.seal(Buffer.from(`${part('one')}${part('second')}--B--\r\n`)),
    });
    const body = attempt.openValue(answer.body.toString(), PLAIN.nothing) as { text: string }[][];
    assert.deepEqual(breaches('unstructured', {}, { kind: 'whole', status: 200, body }), []);
    assert.deepEqual(
      body.map(([first]) => first?.text.slice(0, 8)),
      ['3 bytes ', '6 bytes '],
    );
  });
});
