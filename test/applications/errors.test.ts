/**
 * What only the official clients show of an error: the class of their own that they raise, whether they ask
 * again by themselves, and what a program reads from it. Which status and which words each fault gets is the
 * fault matrix (test/faults/matrix.ts).
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { CLIENT } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { type Asked, CLIENTS, type ErrorClass, watchedFetch } from './ask.ts';

/** `keyless`: clients bring their keys, of which the remote takes one. */
type Remote = 'usual' | 'keyless' | 'rejected';

interface Row {
  readonly asked: Partial<Asked>;
  /** Undefined where the response had begun. */
  readonly status: number | undefined;
  readonly raises: ErrorClass;
  /** Ours; the model server's errors have codes of their own. */
  readonly code?: string;
  /** How many requests the client sends, of at most two. */
  readonly requests?: 2;
  readonly remote?: Remote;
  /** Shows on streams only. */
  readonly streams?: true;
}

/**
 * The class is chosen by the status alone, which is the clients' own: a few of the model server's errors,
 * which arrive encrypted, stand for all.
 */
const STATUSES: readonly (readonly [status: number, raises: ErrorClass, requests?: 2])[] = [
  [404, 'NotFoundError'],
  [429, 'RateLimitError', 2],
  [503, 'InternalServerError', 2],
];

const ROWS: Readonly<Record<string, Row>> = {
  ...Object.fromEntries(
    STATUSES.map(([status, raises, requests]) => [
      `a ${status} of the model server`,
      { asked: { model: `sim-error-${status}` }, status, raises, ...(requests && { requests }) },
    ]),
  ),
  'a service that is rejected': {
    ...{ asked: {}, remote: 'rejected', status: 400, raises: 'BadRequestError', code: 'attestation_failed' },
  },
  'a request without the name of a model': {
    ...{ asked: { model: '' }, status: 400, raises: 'BadRequestError', code: 'missing_model' },
  },
  'a key that the service rejects': {
    ...{ asked: { apiKey: 'wrong-key' }, remote: 'keyless' },
    ...{ status: 401, raises: 'AuthenticationError', code: 'api_key_rejected' },
  },
  'a service that resets the connection': {
    asked: { model: 'sim-echo+fault=reset_before_headers' },
    ...{ status: 502, raises: 'InternalServerError', code: 'upstream_reset', requests: 2 },
  },
  'a redirect, which stays as it is': {
    asked: { model: 'sim-echo+fault=redirect' },
    ...{ status: 502, raises: 'InternalServerError', code: 'upstream_redirect' },
  },
  // A shortened answer that a program takes for the whole would be the worst that a proxy can do.
  ...Object.fromEntries(
    Object.entries({
      truncate: 'stream_unfinished',
      half_close: 'stream_unfinished',
      flip_tag: 'response_not_authentic',
    }).map(([fault, code]): [string, Row] => [
      `a break in mid-stream by ${fault}`,
      {
        asked: { model: `sim-echo+fault=${fault}` },
        ...{ status: undefined, raises: 'APIError', code, streams: true },
      },
    ]),
  ),
};

interface Raised {
  readonly status: number | undefined;
  readonly message: string;
  readonly headers: Headers | undefined;
  /** OpenAI's client keeps the object inside `error`, Anthropic's the whole body. */
  readonly error?: { readonly code?: unknown; readonly error?: { readonly code?: unknown } };
}

describe('an error through the official client', { concurrency: 8 }, () => {
  const stacks = new Map<Remote, Stack>();
  const urlOf = (remote: Remote = 'usual'): string => (stacks.get(remote) as Stack).url;
  before(async () => {
    const faults = { 'evidence-debug': true };
    stacks.set('usual', await startStack());
    stacks.set('keyless', await startStack({ apiKey: null, simulator: { apiKey: 'right-key' } }));
    stacks.set('rejected', await startStack({ managedManifest: true, simulator: { faults } }));
  });
  after(async () => {
    for (const stack of stacks.values()) await stack.close();
  });

  for (const [name, client] of Object.entries(CLIENTS)) {
    describe(name, { concurrency: 32 }, () => {
      for (const [what, row] of Object.entries(ROWS)) {
        const { asked, status, raises, code, requests = 1, remote, streams } = row;
        for (const stream of streams ? [true] : [false, true]) {
          it(`${what}${stream ? ', for a stream' : ''}: ${raises} after ${requests} of 2 requests`, async () => {
            const { fetch, sent } = watchedFetch();
            const url = urlOf(remote);
            const usual = { model: 'sim-echo', apiKey: 'k', maxRetries: 1 };
            const asking = client.ask({ url, stream, fetch, ...usual, ...asked });
            await assert.rejects(asking, (thrown) => {
              assert.ok(thrown instanceof client.classes[raises], String(thrown));
              const { error, message, headers, ...raised } = thrown as unknown as Raised;
              assert.equal(raised.status, status);
              if (code === undefined) return true;
              assert.equal(error?.error?.code ?? error?.code, code);
              assert.match(message, new RegExp(`request id ${CLIENT}_[0-9a-f-]{36}`));
              if (code !== 'attestation_failed') return true;
              assert.match(message, /snp\.id_key: expected/);
              assert.equal(headers?.get('retry-after'), null);
              return true;
            });
            assert.equal(sent(), requests);
          });
        }
      }
    });
  }

  it('openai raises not_supported if the Responses API is off', async () => {
    const { fetch, sent } = watchedFetch();
    const client = new OpenAI({ baseURL: `${urlOf()}/v1`, apiKey: 'k', fetch });
    const asking = client.responses.create({ model: 'sim-echo', input: 'x' });
    await assert.rejects(asking, { status: 400, code: 'not_supported' });
    assert.equal(sent(), 1);
  });
});
