/**
 * What only the official clients show of an error: the class of their own that they raise, whether they ask
 * again by themselves, and what a program reads from it. Which status and which words each fault gets is the
 * fault matrix (test/faults/matrix.ts).
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { CLIENT, DOOR, proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { type Asked, CLIENTS, type Client, type ErrorClass } from './ask.ts';
import { OPENAI_CLIENTS, watchedFetch } from './versions.ts';

interface Row {
  readonly what: string;
  readonly model?: string;
  readonly content?: string;
  readonly headers?: Record<string, string>;
  /** `keyless`: clients bring their own keys, and the remote takes one only. */
  readonly proxy?: 'keyless';
  /** Added to the host in place of the client's usual. */
  readonly base?: string;
  readonly raises: ErrorClass;
  /** Undefined where the response had begun. */
  readonly status: number | undefined;
  /** Ours; the model server's errors have codes of their own. */
  readonly code?: string;
  /** How many requests the client sends, of at most two. */
  readonly requests: 1 | 2;
  /** Why there is no such error behind the library's door. */
  readonly skip?: string | false;
}

const row = (
  what: string,
  status: number | undefined,
  raises: ErrorClass,
  requests: 1 | 2,
  more: Partial<Row>,
): Row => ({ what, status, raises, requests, ...more });
/**
 * The class is chosen by the status alone, so that the model server's own errors, which arrive encrypted,
 * stand for all.
 */
const model = (status: number, raises: ErrorClass, requests: 1 | 2 = 1): Row =>
  row(`a ${status}`, status, raises, requests, { model: `sim-error-${status}` });

const ROWS: readonly Row[] = [
  model(400, 'BadRequestError'),
  model(401, 'AuthenticationError'),
  model(403, 'PermissionDeniedError'),
  model(404, 'NotFoundError'),
  model(409, 'ConflictError', 2),
  model(413, 'APIError'),
  model(422, 'UnprocessableEntityError'),
  model(429, 'RateLimitError', 2),
  model(500, 'InternalServerError', 2),
  model(502, 'InternalServerError', 2),
  model(503, 'InternalServerError', 2),
  row('a request without the name of a model', 400, 'BadRequestError', 1, {
    model: '',
    code: 'missing_model',
  }),
  row('a key that the service rejects', 401, 'AuthenticationError', 1, {
    proxy: 'keyless',
    code: 'api_key_rejected',
  }),
  row('a request of a foreign web page', 403, 'PermissionDeniedError', 1, {
    headers: { origin: 'https://foreign.example' },
    code: 'origin_forbidden',
    skip: proxyAlone('origins'),
  }),
  row('a base URL that leads nowhere', 404, 'NotFoundError', 1, { base: '/v2' }),
  row('a body over the limit', 413, 'APIError', 1, {
    content: 'x'.repeat(100_000),
    code: 'body_too_large',
    skip: proxyAlone('limits'),
  }),
  row('a service that resets the connection', 502, 'InternalServerError', 2, {
    model: 'sim-echo+fault=reset_before_headers',
    code: 'upstream_reset',
  }),
  row('a redirect, which stays as it is', 502, 'InternalServerError', 1, {
    model: 'sim-echo+fault=redirect',
    code: 'upstream_redirect',
  }),
];
/** What came of it has been shown to the program: no client takes that back. */
const BROKEN_OFF = row('a break in mid-stream', undefined, 'APIError', 1, {
  model: 'sim-echo+fault=truncate',
  code: 'stream_unfinished',
});

interface Raised {
  readonly status: number | undefined;
  readonly message: string;
  /** OpenAI's client keeps the object inside `error`, Anthropic's the whole body. */
  readonly error?: { readonly code?: unknown; readonly error?: { readonly code?: unknown } };
}

const codeOf = ({ error }: Raised): unknown => error?.error?.code ?? error?.code;

describe('an error through the official client', { concurrency: 8 }, () => {
  let usual: Stack;
  let keyless: Stack;
  before(async () => {
    usual = await startStack({ flags: ['--max-body-bytes=65536'] });
    keyless = await startStack({ apiKey: null, simulator: { apiKey: 'right-key' } });
  });
  after(async () => {
    await usual.close();
    await keyless.close();
  });

  const asked = (client: Client, row: Partial<Row>, more: Pick<Asked, 'fetch'> & Partial<Asked>): Asked => ({
    baseURL: `${(row.proxy === 'keyless' ? keyless : usual).url}${row.base ?? client.base}`,
    model: row.model ?? 'sim-echo',
    content: row.content ?? 'hello',
    headers: row.headers ?? {},
    apiKey: 'wrong-key',
    stream: false,
    ...more,
  });

  for (const [name, client] of CLIENTS) {
    describe(name, { concurrency: 32 }, () => {
      for (const stream of [false, true]) {
        for (const row of stream ? [...ROWS, BROKEN_OFF] : ROWS) {
          const { what, raises, requests, skip = false } = row;
          const how = `${stream ? ', for a stream' : ''}: ${raises} after ${requests === 1 ? 'one request' : 'two requests'}`;
          it(`${what}${how}`, { skip }, async () => {
            const { fetch, sent } = watchedFetch();
            await assert.rejects(
              client.ask(asked(client, row, { stream, fetch, maxRetries: 1 })),
              (thrown) => {
                assert.ok(thrown instanceof client.classes[raises], String(thrown));
                const error = thrown as unknown as Raised;
                assert.equal(error.status, row.status);
                if (row.code !== undefined) {
                  assert.equal(codeOf(error), row.code);
                  assert.match(error.message, new RegExp(`request id ${CLIENT}_[0-9a-f-]{36}`));
                }
                return true;
              },
            );
            assert.equal(sent.length, requests);
          });
        }
      }
    });

    describe(name, { concurrency: 2 }, () => {
      it('raises a lasting 503 after three requests by default', async () => {
        const { fetch, sent } = watchedFetch();
        await assert.rejects(client.ask(asked(client, { model: 'sim-error-503' }, { fetch })));
        assert.equal(sent.length, 3);
      });

      it('retries a 503 with "Retry-After: 1" after a second at the earliest', async () => {
        const { fetch, sent } = watchedFetch();
        const row = { model: 'sim-echo+fault=status:503,1' };
        await assert.rejects(client.ask(asked(client, row, { fetch, maxRetries: 1 })));
        const waited = (sent[1]?.sentAt ?? 0) - (sent[0]?.sentAt ?? 0);
        assert.ok(waited >= 990, `waited ${waited} ms`); // without the header: at most 500 ms
      });
    });
  }

  for (const [name, Class] of Object.entries(OPENAI_CLIENTS)) {
    it(`${name} raises not_supported if the Responses API is off, with a message that says what to set`, async () => {
      const { fetch, sent } = watchedFetch();
      const client = new Class({ baseURL: `${usual.url}/v1`, apiKey: 'k', fetch });
      await assert.rejects(client.responses.create({ model: 'sim-echo', input: 'x' }), (error) => {
        assert.ok(error instanceof Class.BadRequestError, String(error));
        assert.deepEqual([error.status, error.code], [400, 'not_supported']);
        const library = /Set the option responsesApi to true/;
        assert.match(
          error.message,
          DOOR === 'library' ? library : /set the client to \/v1\/chat\/completions/,
        );
        return true;
      });
      assert.equal(sent.length, 1);
    });
  }
});

describe('a 503 that occurs only once', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  for (const [name, client] of CLIENTS) {
    it(`makes the official client ${name} ask again, and the program sees only the answer`, async () => {
      const { fetch, sent } = watchedFetch();
      stack.simulator.faults.set('inference-once', 'gateway_status:503');
      const answer = await client.ask({
        baseURL: `${stack.url}${client.base}`,
        model: 'sim-echo',
        content: 'hello',
        stream: true,
        headers: {},
        apiKey: 'k',
        fetch,
      });
      assert.deepEqual([answer, sent.length], ['hello', 2]);
    });
  }
});
