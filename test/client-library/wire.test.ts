/**
 * What leaves is the same whichever way it takes: for one request, with the same randomness, clock and
 * secret, the proxy and the client library put the same bytes on the wire, but for what says which of the two
 * it is.
 */
import '../support/remote/fixed-randomness.ts';
import assert from 'node:assert/strict';
import { after, before, describe, it, mock } from 'node:test';
import fc from 'fast-check';
import { Agent } from 'undici';
import { newRequestId } from '../../lib/api/error-response.ts';
import { forward } from '../../lib/client-library/forward.ts';
import { type ClientConfig, ownOptions, readOptions } from '../../lib/client-library/read-options.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { fakeSession, startGateway, type TestGateway } from '../support/doors/gateway.ts';
import { fetchThrough } from '../support/doors/library-door.ts';
import {
  type ScriptedUpstream,
  type SeenRequest,
  startScriptedUpstream,
} from '../support/remote/scripted-upstream.ts';

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);
const SALT = 'one salt that everybody shares 01';

/** A runtime's fetch adds them by itself; the last two with a request that a cache could answer. */
const OF_FETCH = ['accept-language', 'sec-fetch-mode', 'user-agent', 'cache-control', 'pragma'];

interface Asked {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array<ArrayBuffer>;
}

const bytes = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(Buffer.from(text));
const post = (path: string, type: string, body: Uint8Array<ArrayBuffer>): Asked => ({
  ...{ method: 'POST', path, headers: { 'content-type': type }, body },
});

// Requests. What both refuse belongs to them too.

const text = fc.oneof(fc.string({ unit: 'grapheme', maxLength: 60 }), fc.constant('word '.repeat(800)));
const model = fc.constantFrom('gpt-oss-120b', 'modèle-ü', 'm'.repeat(64));
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined, freq: 2 });
const role = fc.constantFrom('system', 'user', 'assistant');
const messages = fc.array(fc.record({ role, content: text }), { minLength: 1, maxLength: 4 });
const shared = {
  model,
  stream: optional(fc.boolean()),
  temperature: optional(fc.double({ min: 0, max: 2, noNaN: true })),
  cache_salt: optional(fc.constantFrom('a salt of the application, 32 bytes long', 'short')),
  'a member that nobody knows': optional(fc.jsonValue()),
};

/** Members that are undefined are not in the text, and the text may have blanks. */
const json = (path: string, members: Readonly<Record<string, fc.Arbitrary<unknown>>>) =>
  fc
    .tuple(fc.record(members), fc.constantFrom(0, 2))
    .map(([value, indent]) => post(path, 'application/json', bytes(JSON.stringify(value, null, indent))));

const KINDS: Readonly<Record<string, fc.Arbitrary<Asked>>> = {
  chat: json('/v1/chat/completions', { ...shared, messages, n: optional(fc.integer({ min: 1, max: 4 })) }),
  responses: json('/v1/responses', {
    model,
    stream: optional(fc.boolean()),
    input: fc.oneof(text, messages),
    tools: optional(
      fc.constant([{ type: 'web_search' }, { type: 'function', name: 'read', parameters: {} }]),
    ),
    metadata: optional(fc.constant({ of: 'the application' })),
  }),
  messages: json('/v1/messages?beta=true&key=1', { ...shared, messages, max_tokens: fc.nat(), system: text }),
  unstructured: fc
    .uint8Array({ maxLength: 3_000 })
    .map((body) => post('/unstructured/general/v0/general', 'application/pdf', Uint8Array.from(body))),
  models: fc.constant<Asked>({ method: 'GET', path: '/v1/models', headers: {} }),
};

/** Those that go on, and those that do not. */
const APPLICATION_HEADERS = fc.record(
  {
    accept: fc.constantFrom('application/json', 'text/event-stream'),
    'anthropic-version': fc.constant('2023-06-01'),
    'anthropic-beta': fc.constant('context-1m-2025-08-07, interleaved-thinking-2025-05-14'),
    'openai-beta': fc.constant('assistants=v2'),
    authorization: fc.constant('Bearer of another vendor'),
    'x-api-key': fc.constant('of another vendor'),
    'openai-organization': fc.constant('org'),
  },
  { requiredKeys: [] },
);

interface Scene {
  readonly gateway: TestGateway;
  readonly config: ClientConfig;
}

describe('the proxy and the library', { timeout: 600_000 }, () => {
  let upstream: ScriptedUpstream;
  let network: Agent;
  const scenes = new Map<string | undefined, Scene>();

  before(async () => {
    mock.timers.enable({ apis: ['Date'], now: NOW });
    upstream = await startScriptedUpstream();
    upstream.on(async ({ body, write }) => {
      await body();
      await write(
        'HTTP/1.1 418 No\r\nContent-Type: application/json\r\nPrivatemode-Encrypted: false\r\nContent-Length: 2\r\n\r\n{}',
      );
    });
    network = new Agent({ connect: { ca: upstream.ca } });
    for (const salt of [undefined, SALT]) {
      const gateway = await startGateway({ upstream, deps: { salt: { shared: salt }, createTranslator } });
      const config = readOptions(
        ownOptions({
          apiKey: CANARY_KEY,
          apiEndpoint: `https://localhost:${upstream.port}`,
          promptCacheSalt: salt,
          responsesApi: true,
          fetch: fetchThrough(network),
        }),
      );
      scenes.set(salt, { gateway, config });
    }
  });
  after(async () => {
    for (const { gateway } of scenes.values()) await gateway.close();
    await network.destroy();
    await upstream.close();
    mock.timers.reset();
  });

  /** The answer, without the id that differs, and the request that left for it, if one did. */
  async function sent(asking: Promise<Response>) {
    upstream.clear();
    const response = await asking;
    const answer = (await response.text()).replaceAll(/(?:proxy|sdk)_[0-9a-f-]{36}/g, 'ID');
    assert.deepEqual(upstream.violations, []);
    assert.ok(upstream.requests.length <= 1);
    return { answer: [response.status, answer], request: upstream.requests[0] };
  }

  async function both(salt: string | undefined, { method, path, headers, body }: Asked) {
    const { gateway, config } = scenes.get(salt) as Scene;
    const url = `${gateway.url}${path}`;
    const init = { method, headers, ...(body && { body }) };
    const proxy = await sent(fetch(url, init));
    const session = fakeSession();
    const library = await sent(forward(config, () => session, new Request(url, init), newRequestId('sdk')));
    return { proxy, library };
  }

  /** A request of the proxy as the library has to send it. */
  function asLibrary({ headers, ...request }: SeenRequest) {
    const { 'privatemode-os': os, 'privatemode-architecture': architecture, ...same } = headers;
    assert.ok(os && architecture);
    assert.equal(same['privatemode-client'], 'Proxy');
    const [, id] = /^proxy_([0-9a-f-]{36})(?:_0)?$/.exec(same['privatemode-user-request-id'] ?? '') ?? [];
    assert.ok(id);
    return {
      ...withoutConnection(request),
      headers: { ...same, 'privatemode-client': 'SDK', 'privatemode-user-request-id': `sdk_${id}` },
    };
  }

  for (const [kind, asked] of Object.entries(KINDS)) {
    it(`send the same request to the service for any request of this kind: ${kind}`, async () => {
      const left = { requests: 0, salted: 0 };
      await fc.assert(
        fc.asyncProperty(
          asked,
          APPLICATION_HEADERS,
          fc.constantFrom(undefined, SALT),
          async (request, headers, salt) => {
            const { proxy, library } = await both(salt, {
              ...request,
              headers: { ...headers, ...request.headers },
            });
            assert.deepEqual(library.answer, proxy.answer);
            if (proxy.request === undefined) {
              assert.equal(library.request, undefined);
              return;
            }
            assert.ok(library.request);
            left.requests += 1;
            if (proxy.request.headers['privatemode-shard-key'] !== undefined) left.salted += 1;
            const own = Object.entries(library.request.headers).filter(([name]) => !OF_FETCH.includes(name));
            assert.deepEqual(
              { ...withoutConnection(library.request), headers: Object.fromEntries(own) },
              asLibrary(proxy.request),
            );
          },
        ),
        { seed: 20261122, numRuns: 40 },
      );
      assert.ok(left.requests >= 10, `only ${left.requests} requests left`);
      assert.equal(left.salted > 0, ['chat', 'responses', 'messages'].includes(kind));
    });
  }
});

/** Method, target and body; which connection it came on is chance. */
const withoutConnection = ({ method, target, body }: Omit<SeenRequest, 'headers'>) => ({
  method,
  target,
  body: body.toString('latin1'),
});
