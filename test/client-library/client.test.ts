/** How a client behaves from its first request to its end, with a deployment that works or does not. */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { inspect } from 'node:util';
import Anthropic from '@anthropic-ai/sdk';
import { runtimeClock } from '../../lib/client-library/clock.ts';
import { toApplication, unreachable } from '../../lib/client-library/errors.ts';
import { createPrivatemodeFetch, openFetch } from '../../lib/client-library/fetch.ts';
import { ERRORS, PrivatemodeAI, PrivatemodeError } from '../../lib/client-library/index.ts';
import type { ClientVerdict, PrivatemodeOptions, Protection } from '../../lib/client-library/options.ts';
import { ownOptions, readOptions } from '../../lib/client-library/read-options.ts';
import { CLOCK_REMEDY } from '../../lib/errors.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { runIn } from '../support/doors/client-package.ts';
import { clientOptions, fetchWith } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'pm-key-that-nobody-may-see-4f1d9a';
const SALT = 'salt-that-nobody-may-see-77c0b2e1d9';
const HELLO = { model: 'sim-echo', messages: [{ role: 'user' as const, content: 'hello' }] };
type APIError = InstanceType<typeof PrivatemodeAI.APIError>;

/** A fetch that must not be used. */
const nothing = (): never => assert.fail('something was sent');

/** Codes that a program with the library never meets: it has no port, no clients, no limits and no files. */
const PROXY_ALONE = [
  ...['invalid_host', 'origin_forbidden', 'client_forbidden', 'client_unknown', 'service_key_rejected'],
  ...['requests_per_minute_reached', 'tokens_per_day_reached', 'max_concurrent_reached'],
  ...['max_in_flight_reached', 'upload_too_slow', 'too_many_uploads', 'too_many_responses'],
  ...['limits_unavailable', 'manifest_log_failed', 'verify_input_invalid', 'listen_failed'],
  ...['receipts_unavailable', 'receipts_unreadable', 'websocket_unsupported', 'resources_exhausted'],
];

describe('a client of the library', { timeout: 600_000 }, () => {
  let simulator: Simulator;
  let network: ReturnType<typeof clientOptions>['network'];
  let base: PrivatemodeOptions;
  const opened: { close(): void }[] = [];

  before(async () => {
    simulator = await startTestSimulator({ apiKey: KEY });
    ({ network, ...base } = { ...clientOptions(simulator), apiKey: KEY });
  });
  after(async () => {
    for (const client of opened) client.close();
    await network.destroy();
    await simulator.close();
  });

  function kept<Client extends { close(): void }>(client: Client): Client {
    opened.push(client);
    return client;
  }
  const open = (options: PrivatemodeOptions = {}): PrivatemodeAI =>
    kept(new PrivatemodeAI({ ...base, maxRetries: 0, ...options }));

  /** A client that waits for short pauses between its attempts, and repeats requests as everybody's does. */
  const quick = (options: PrivatemodeOptions): PrivatemodeAI =>
    kept(
      new PrivatemodeAI({
        fetch: fetchWith({ ...base, ...options }, { firstBackoff: 250, longestBackoff: 500 }),
      }),
    );

  it('calls onVerdict and onEpoch; an exception of theirs stops no request and becomes an uncaught exception', async (t) => {
    const verdicts: ClientVerdict[] = [];
    const protections: Protection[] = [];
    const uncaught: string[] = [];
    const runners = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    process.on('uncaughtException', ({ message }) => uncaught.push(message));
    t.after(() => {
      process.removeAllListeners('uncaughtException');
      for (const runner of runners) process.on('uncaughtException', runner);
    });
    const client = open({
      onVerdict(verdict) {
        verdicts.push(verdict);
        throw new Error('of onVerdict');
      },
      onEpoch(protection) {
        protections.push(protection);
        throw new Error('of onEpoch');
      },
    });
    const { choices } = await client.chat.completions.create(HELLO);
    assert.equal(choices[0]?.message.content?.trim(), 'hello');
    await eventually('both exceptions', () => uncaught.length === 2);
    assert.deepEqual(uncaught.sort(), ['of onEpoch', 'of onVerdict']);
    assert.deepEqual([verdicts.length, verdicts[0]?.outcome], [1, 'accepted']);
    assert.deepEqual(protections, [client.protection]);
  });

  it('fails requests with shutting_down at once when signal or close() closed it, before or after the first', async () => {
    const failed = { status: 503, code: 'shutting_down' };
    const early = new PrivatemodeAI({ apiKey: KEY, fetch: nothing });
    early.close();
    await assert.rejects(early.chat.completions.create(HELLO), ({ status, code, headers }: APIError) => {
      assert.deepEqual([{ status, code }, headers?.get('x-should-retry')], [failed, 'false']);
      return true;
    });
    const told = { code: 'shutting_down', message: 'the client was closed', remedy: 'Make a new client.' };
    await assert.rejects(early.verify(), told);

    const aborted = open({ fetch: nothing, signal: AbortSignal.abort() });
    await assert.rejects(aborted.chat.completions.create(HELLO), failed);

    const control = new AbortController();
    const client = open({ signal: control.signal });
    await client.chat.completions.create(HELLO);
    control.abort();
    await assert.rejects(client.chat.completions.create(HELLO), failed);
    assert.equal(client.protection, undefined);
  });

  it('leaves no listener on its signal once close() was called, so that the signal does not keep it alive', () => {
    const { signal } = new AbortController();
    const clients = [1, 2].map(() => createPrivatemodeFetch({ apiKey: KEY, fetch: nothing, signal }));
    assert.equal(getEventListeners(signal, 'abort').length, 2);
    for (const client of clients) client.close();
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  it('completes a response if close() is called in the middle of it', async () => {
    const client = open();
    const stream = await client.chat.completions.create({ ...HELLO, model: 'sim-5x50', stream: true });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 1) client.close();
    assert.ok(chunks >= 5, `${chunks} chunks`);
  });

  it('shares the session of a fetch that createPrivatemodeFetch made, as does an Anthropic client, and refuses other options', async () => {
    const fetch = kept(createPrivatemodeFetch(base));
    const client = kept(new PrivatemodeAI({ fetch, maxRetries: 0 }));
    const before = simulator.counts['attest'] ?? 0;
    await client.chat.completions.create(HELLO);
    const anthropic = new Anthropic({ apiKey: 'unused', fetch });
    const { content } = await anthropic.messages.create({ ...HELLO, max_tokens: 9 });
    assert.equal(content[0]?.type === 'text' && content[0].text.trim(), 'hello');
    assert.equal(simulator.counts['attest'], before + 1);
    assert.deepEqual(client.protection, fetch.protection());
    const others = { apiKey: KEY, manifest: '{}' };
    const refused = { code: 'config_invalid', message: /apiKey.*: a client with the fetch of another/ };
    assert.throws(() => new PrivatemodeAI({ fetch, ...others }), refused);
    const nested = { code: 'config_invalid', message: /^fetch was made by createPrivatemodeFetch/ };
    assert.throws(() => createPrivatemodeFetch({ ...others, fetch }), nested);
  });

  it('translates the Responses API if it may, and no tool call is complete in a stream that was changed', async () => {
    const fetch = kept(createPrivatemodeFetch({ ...base, responsesApi: true }));
    const client = new PrivatemodeAI({ fetch, maxRetries: 0 });
    const asked = { model: 'sim-echo', input: 'hello', tools: [{ type: 'web_search' as const }] };
    const { data, response } = await client.responses.create(asked).withResponse();
    assert.deepEqual([data.status, data.output_text.trim()], ['completed', 'hello']);
    assert.equal(response.headers.get('privatemode-proxy-tools-left-out'), 'web_search');
    assert.equal(response.headers.get('privatemode-proxy-secret-id'), fetch.protection()?.secretId);

    const tool = { type: 'function', name: 'read', parameters: { type: 'object' } };
    const changed = { model: 'sim-tools+fault=flip_tag:2', input: 'hello', tools: [tool], stream: true };
    const { body } = await fetch('/v1/responses', { method: 'POST', body: JSON.stringify(changed) });
    const decoder = new TextDecoder();
    let text = '';
    const read = async (): Promise<void> => {
      for await (const piece of body!) text += decoder.decode(piece, { stream: true });
    };
    await assert.rejects(read(), { code: 'response_not_authentic' });
    assert.doesNotMatch(text, /response\.(?:output_item\.done|completed|incomplete)|--/);
    assert.match(text, /event: response\.failed\ndata: .*"message":"response_not_authentic: .*\n\n$/);

    const refused = { status: 400, code: 'not_supported', message: /Set the option responsesApi to true/ };
    await assert.rejects(open({ fetch: nothing }).responses.create({ model: 'm', input: 'x' }), refused);
  });

  it('shares options and verification with its copies, and refuses a copy with another key, host or manifest', async () => {
    const client = open();
    const copy = client.withOptions({ maxRetries: 1, timeout: 5_000 });
    assert.ok(copy instanceof PrivatemodeAI);
    const before = simulator.counts['attest'] ?? 0;
    await client.chat.completions.create(HELLO);
    await copy.chat.completions.create(HELLO);
    assert.equal(simulator.counts['attest'], before + 1);
    assert.deepEqual(copy.protection, client.protection);
    const others: Record<string, unknown>[] = [
      { apiKey: 'of-somebody-else' },
      { baseURL: 'https://localhost:1/v1' },
      { promptCacheSalt: SALT },
      { manifest: '{}' },
      { gpuPolicy: { allowUnknown: false } },
      { apiEndpoint: 'https://localhost:1' },
      { fetch: globalThis.fetch },
    ];
    for (const other of others) {
      assert.throws(() => client.withOptions(other), { code: 'config_invalid' }, JSON.stringify(other));
      assert.throws(() => copy.withOptions({ timeout: 1, ...other }), { code: 'config_invalid' });
    }
    // As other libraries hand them on; and what a copy is made for.
    const { apiKey, baseURL } = client;
    const same: Record<string, unknown> = { apiKey, baseURL, defaultHeaders: { 'openai-beta': 'x' } };
    await copy.withOptions(same).chat.completions.create(HELLO);
    assert.deepEqual([copy.maxRetries, copy.timeout], [1, 5_000]);
  });

  it('shows neither its key nor its salt if the client or one of its errors is printed', async () => {
    const shown: unknown[] = [];
    const client = open({ promptCacheSalt: SALT });
    const lost = open({ apiEndpoint: 'https://localhost:1', verificationTimeout: 100 });
    for (const failing of [
      () => lost.chat.completions.create(HELLO),
      () => lost.verify(),
      () => client.chat.completions.create({ ...HELLO, model: 'sim-error-400' }),
      () => client.images.generate({ prompt: 'x' }),
    ]) {
      await failing().catch((thrown: unknown) => shown.push(thrown));
    }
    assert.equal(shown.length, 4);
    shown.push(client, client.withOptions({}), lost, await client.verify());
    for (const customInspect of [true, false]) {
      const text = inspect(shown, { depth: Infinity, showHidden: true, customInspect });
      assert.doesNotMatch(text, /nobody-may-see/);
    }
    assert.match(
      inspect(client),
      /^PrivatemodeAI {"protection":{"secretId":"[^"]+","manifestSha256":.{1,200}$/,
    );
    assert.equal(inspect({ lost }), '{ lost: PrivatemodeAI {"protection":null} }');
    assert.ok(inspect(PrivatemodeAI.prototype));
  });

  for (const [wrong, host, code, words] of [
    ['apiEndpoint', 'localhost:PORT', 'upstream_unreachable', /^502 localhost:\d+ refused .* options? /],
    ['cdnBaseUrl', 'no-such-host.invalid', 'manifest_unavailable', /no-such-host\.invalid does not resolve/],
    ['fetch', 'localhost:0', 'upstream_tls_untrusted', /the ca\.pem of a simulator: NODE_EXTRA_CA_CERTS/],
  ] as const) {
    it(`fails a request soon if ${wrong} is wrong, with an error after which SDKs do not retry`, async () => {
      const url = `https://${host.replace('PORT', String(await freePort()))}`;
      // The fetch of Node trusts the vendors' CAs alone.
      const client = quick({ [wrong]: wrong === 'fetch' ? globalThis.fetch : url });
      assert.ok(client.maxRetries > 0);
      const startedAt = performance.now();
      await assert.rejects(client.chat.completions.create(HELLO), (thrown: APIError) => {
        assert.deepEqual([thrown.code, thrown.headers?.get('x-should-retry')], [code, 'false']);
        assert.match(thrown.message, words);
        return true;
      });
      const took = performance.now() - startedAt;
      assert.ok(took < 20_000, `${took} ms, where one verificationTimeout has 30 s`);
    });
  }

  it('waits for a service that answered before, and fails after verificationTimeout with an error that SDKs retry', async () => {
    let asked = 0;
    const cause = Object.assign(new Error(), { code: 'ECONNREFUSED' });
    const client = quick({
      verificationTimeout: 2_000,
      manifest: Buffer.from(simulator.manifest),
      async fetch() {
        asked += 1;
        if (asked > 1) throw new TypeError('fetch failed', { cause });
        return new Response('', { status: 503 });
      },
    }).withOptions({ maxRetries: 0 });
    await assert.rejects(
      client.chat.completions.create(HELLO),
      ({ status, code, message, headers }: APIError) => {
        assert.deepEqual([status, code, headers?.get('x-should-retry')], [503, 'not_ready', null]);
        assert.match(message, /was not verified within 2 s: localhost:\d+ refused the connection/);
        return true;
      },
    );
    assert.ok(asked > 3, 'the first renewal has three attempts');
  });

  it('has remedies that mention no flag and no page of the proxy', () => {
    for (const [code, { remedy }] of Object.entries(ERRORS)) {
      if (!PROXY_ALONE.includes(code)) assert.doesNotMatch(remedy, /--|proxy|docs\//i, code);
    }
    const clock = new PrivatemodeError('attestation_failed', 'not yet valid', { remedy: CLOCK_REMEDY });
    assert.equal(toApplication(clock).remedy, CLOCK_REMEDY);
    const mismatch = new PrivatemodeError('manifest_mismatch', 'another', { remedy: 'See --manifest-path.' });
    const pinned = /^Nothing was sent\. Review the manifest .* manifestText; then set the option manifest/;
    assert.match(toApplication(mismatch, { manifest: new Uint8Array(1) }).remedy, pinned);
    const followed = toApplication(new PrivatemodeError('manifest_mismatch', 'another'), {});
    assert.match(followed.remedy, /^Try again in a moment: a deployment is being replaced\./);
  });

  it('names CORS as a possible cause if a host cannot be reached from a web page', (t) => {
    assert.equal(unreachable('api.example', undefined).message, 'api.example cannot be reached');
    Object.assign(globalThis, { location: { origin: 'https://page.example' } });
    t.after(() => Reflect.deleteProperty(globalThis, 'location'));
    const { code, message, remedy } = unreachable('api.example', undefined);
    assert.equal(code, 'upstream_unreachable');
    assert.match(
      message,
      /cannot be reached, or does not allow pages of https:\/\/page\.example .* \(CORS\)$/,
    );
    assert.match(remedy, /CORS/);
  });

  it('renews the secret if it is used, and not if nobody uses it', async () => {
    let passed = 0;
    const clock = { ...runtimeClock, now: () => Date.now() + passed };
    const make = () => kept(openFetch(readOptions(ownOptions(base), clock)));
    const [used, dropped] = [make(), make()];
    const ask = async (client: typeof used): Promise<void> =>
      assert.equal((await client('https://any.invalid/v1/models')).status, 200);
    const secretOf = ({ protection }: typeof used): string | undefined => protection()?.secretId;
    const before = simulator.counts['attest'] ?? 0;
    for (const client of [used, dropped]) await ask(client);
    const known = [used, dropped].map(secretOf);
    passed = 46 * 60_000;
    await ask(used);
    await eventually('the renewal', () => secretOf(used) !== known[0]);
    assert.equal(secretOf(dropped), known[1]);
    assert.equal(simulator.counts['attest'], before + 3);
  });

  it('lets a process end after its last request', async () => {
    const directory = temporaryDirectory('client-ends-');
    writeFileSync(join(directory, 'ca.pem'), simulator.caPem);
    const { fetch: _, ...options } = base;
    const program = `
      import { PrivatemodeAI } from ${JSON.stringify(join(ROOT, 'lib/client-library/index.ts'))};
      const client = new PrivatemodeAI(${JSON.stringify(options)});
      const stream = await client.chat.completions.create({ ...${JSON.stringify(HELLO)}, stream: true });
      for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
      if (!client.protection) throw new Error('not protected');
    `;
    const { status, stdout, stderr } = await runIn(
      ROOT,
      [process.execPath, '--input-type=module', '--eval', program],
      { NODE_EXTRA_CA_CERTS: join(directory, 'ca.pem') },
    );
    assert.equal(status, 0, stderr);
    assert.equal(stdout.trim(), 'hello');
  });
});
