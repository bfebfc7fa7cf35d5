/**
 * Which class of its own each official client raises for an error, whether it asks again by itself, and what a program can
 * read from it: for the model server's errors (they arrive encrypted), the gateway's (in clear) and our own.
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
  readonly status: number;
  /** Ours; the model server's errors have codes of their own. */
  readonly code?: string;
  /** Whether the client asks again by itself. */
  readonly repeated: boolean;
  /** Why there is no such error behind the library's door. */
  readonly skip?: string | false;
}

/** An error after which the client asks once, unless `more` says otherwise. */
const row = (what: string, status: number, raises: ErrorClass, more: Partial<Row>): Row => ({
  ...{ what, status, raises, repeated: false },
  ...more,
});
const model = (status: number, raises: ErrorClass, repeated = false): Row =>
  row(`an encrypted ${status} of the model server`, status, raises, {
    model: `sim-error-${status}`,
    repeated,
  });

const ROWS: readonly Row[] = [
  model(400, 'BadRequestError'),
  model(401, 'AuthenticationError'),
  model(403, 'PermissionDeniedError'),
  model(404, 'NotFoundError'),
  model(409, 'ConflictError', true),
  model(413, 'APIError'),
  model(422, 'UnprocessableEntityError'),
  model(429, 'RateLimitError', true),
  model(500, 'InternalServerError', true),
  model(502, 'InternalServerError', true),
  model(503, 'InternalServerError', true),
  row('a 400 of the service, in clear and marked so', 400, 'BadRequestError', {
    model: 'sim-echo+fault=status:400',
  }),
  row('a 429 of the service, in clear and marked so', 429, 'RateLimitError', {
    model: 'sim-echo+fault=status:429',
    repeated: true,
  }),
  row('a 503 whose text is not authentic', 503, 'InternalServerError', {
    model: 'sim-echo+fault=gateway_status:503',
    repeated: true,
  }),
  row('a request without the name of a model', 400, 'BadRequestError', { model: '', code: 'missing_model' }),
  row('a key that the service rejects', 401, 'AuthenticationError', {
    proxy: 'keyless',
    code: 'api_key_rejected',
  }),
  row('a request of a foreign web page', 403, 'PermissionDeniedError', {
    headers: { origin: 'https://foreign.example' },
    code: 'origin_forbidden',
    skip: proxyAlone('origins'),
  }),
  row('a base URL that leads nowhere', 404, 'NotFoundError', { base: '/v2' }),
  row('a body over the limit', 413, 'APIError', {
    content: 'x'.repeat(100_000),
    code: 'body_too_large',
    skip: proxyAlone('limits'),
  }),
  row('an upstream that resets the connection', 502, 'InternalServerError', {
    model: 'sim-echo+fault=reset_before_headers',
    code: 'upstream_reset',
    repeated: true,
  }),
  row('a redirect', 502, 'InternalServerError', {
    model: 'sim-echo+fault=redirect',
    code: 'upstream_redirect',
  }),
];

interface Raised {
  readonly status: number;
  readonly message: string;
  readonly headers: Headers;
  /** OpenAI's client keeps the object inside `error`, Anthropic's the whole body. */
  readonly error?: { readonly code?: unknown; readonly error?: { readonly code?: unknown } };
}

const codeOf = ({ error }: Raised): unknown => error?.error?.code ?? error?.code;

describe('errors, as the official clients show them', { concurrency: 8 }, () => {
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
        for (const row of ROWS) {
          const { what, raises, repeated, skip = false } = row;
          const how = `${raises}, ${repeated ? 'asks again' : 'asks once'}`;
          it(`${what}${stream ? ', for a stream' : ''}: ${how}`, { skip }, async () => {
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
            assert.equal(sent.length, repeated ? 2 : 1);
          });
        }
      }
    });

    describe(`${name}, asking again`, { concurrency: 2 }, () => {
      it('gives up after two more requests', async () => {
        const { fetch, sent } = watchedFetch();
        await assert.rejects(client.ask(asked(client, { model: 'sim-error-503' }, { fetch })));
        assert.equal(sent.length, 3);
      });

      it('waits as long as the service says', async () => {
        const { fetch, sent } = watchedFetch();
        const row = { model: 'sim-echo+fault=status:503,1' };
        await assert.rejects(client.ask(asked(client, row, { fetch, maxRetries: 1 })));
        const waited = (sent[1]?.sentAt ?? 0) - (sent[0]?.sentAt ?? 0);
        assert.ok(waited >= 990, `waited ${waited} ms`); // without the header: at most 500 ms
      });
    });
  }

  for (const [name, Class] of Object.entries(OPENAI_CLIENTS)) {
    it(`${name}: the responses API is not there, and the message says what to set`, async () => {
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

    it(`${name}: a base URL without /v1 works`, async () => {
      const client = new Class({ baseURL: usual.url, apiKey: 'k', maxRetries: 0 });
      const { data } = await client.models.list();
      assert.ok(data.some(({ id }) => id === 'sim-echo'));
    });
  }
});

describe('an error that passes', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  for (const [name, client] of CLIENTS) {
    it(`${name}: the program sees the answer only`, async () => {
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
