/** What a client makes of its options, and what it does where they or the service are wrong. */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { inspect } from 'node:util';
import { PRODUCTION_ROOTS } from '../../lib/attestation/roots/production.ts';
import { unreachable } from '../../lib/client-library/control-call.ts';
import { createPrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import {
  ERRORS,
  PrivatemodeAI,
  PrivatemodeError,
  type VerificationError,
} from '../../lib/client-library/index.ts';
import {
  type ClientVerdict,
  type PrivatemodeOptions,
  type Protection,
  readOptions,
} from '../../lib/client-library/options.ts';
import { toApplication } from '../../lib/client-library/remedies.ts';
import { CLOCK_REMEDY } from '../../lib/errors.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { runIn } from '../support/doors/client-package.ts';
import { clientOptions, fetchWith } from '../support/doors/library-door.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'pm-key-that-nobody-may-see-4f1d9a';
const SALT = 'salt-that-nobody-may-see-77c0b2e1d9';
const { ark, ask } = PRODUCTION_ROOTS.snp.Genoa!;
const ROOTS = { snp: { Genoa: { ark, ask } }, tdx: undefined };
const genoa = (pair: object): object => ({ snp: { Genoa: pair } });
const EMPTY_PEM = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n';
const LOCAL = { apiEndpoint: 'https://localhost:1', cdnBaseUrl: 'https://localhost:1' };
const HELLO = { model: 'sim-echo', messages: [{ role: 'user' as const, content: 'hello' }] };
const unset = 'PRIVATEMODE_API_KEY';

/** A fetch that must not be used. */
const nothing = (): never => assert.fail('something was sent');

/** Roots that are wrong, and what the error says of them. */
const WRONG_ROOTS: Readonly<Record<string, readonly [unknown, RegExp]>> = {
  'roots that are no object': [{ snp: [ark] }, /^unsafeTrustRoots\.snp is not/],
  'roots of no known product': [
    { snp: { Turin: { ark, ask } } },
    /^unsafeTrustRoots\.snp is not an object of Milan and Genoa/,
  ],
  'a root as the name of a file': [
    genoa({ ark: 'ark.pem', ask }),
    /^unsafeTrustRoots\.snp\.Genoa\.ark is not the PEM text of one certificate, as readFileSync\(path, 'utf8'\)/,
  ],
  'an ARK without its ASK': [genoa({ ark }), /^unsafeTrustRoots\.snp\.Genoa\.ask is not the PEM/],
  'a root of Intel that is no certificate': [
    { snp: {}, tdx: { root: Buffer.from(ark) } },
    /^unsafeTrustRoots\.tdx\.root is not the PEM/,
  ],
  'a root of Intel in place of an object with it': [
    { snp: {}, tdx: ark },
    /^unsafeTrustRoots\.tdx is not an object of root/,
  ],
  'a root that is no certificate inside its PEM': [
    genoa({ ark: EMPTY_PEM, ask }),
    /\.Genoa\.ark is not the PEM text of one certificate/,
  ],
  'ARK and ASK swapped': [genoa({ ark: ask, ask: ark }), /\.Genoa\.ark is not the certificate of ARK-Genoa$/],
  'roots of another product': [
    { snp: { Milan: { ark, ask } } },
    /\.Milan\.ark is not the certificate of ARK-Milan$/,
  ],
  'a root of AMD for Intel': [
    { snp: {}, tdx: { root: ark } },
    /\.tdx\.root is not the certificate of Intel SGX Root CA$/,
  ],
  'no root at all': [{ snp: {}, tdx: undefined }, /^unsafeTrustRoots holds no root: give snp, tdx or both$/],
  'roots without the names of vendor and product': [
    { ark, ask },
    /^ark is not an option of unsafeTrustRoots\. /,
  ],
};

/** Options that are wrong, and what the error says of them. */
const REFUSED: Readonly<Record<string, readonly [Record<string, unknown>, RegExp]>> = {
  'an http endpoint': [{ apiEndpoint: 'http://localhost:1' }, /^apiEndpoint is not an https URL/],
  'an endpoint with a path': [
    { apiEndpoint: 'https://localhost:1/v1' },
    /^apiEndpoint is an origin, without a path/,
  ],
  'an endpoint with a password': [{ apiEndpoint: `https://a:${KEY}@localhost` }, /^apiEndpoint is not/],
  'an endpoint with a password alone': [{ apiEndpoint: `https://:${KEY}@localhost` }, /^apiEndpoint is not/],
  'an endpoint that is no URL': [{ apiEndpoint: 'https://' }, /^apiEndpoint is not an https URL/],
  'an endpoint that is no text': [{ apiEndpoint: 8080 }, /^apiEndpoint is not an https URL/],
  'an endpoint of null': [{ apiEndpoint: null }, /^apiEndpoint is not an https URL/],
  'a manifest host of null': [{ cdnBaseUrl: null }, /^cdnBaseUrl is not an https URL/],
  'a verificationTimeout of null': [{ verificationTimeout: null }, /^verificationTimeout is not/],
  'a gpuPolicy of null': [
    { gpuPolicy: null },
    /^the options of gpuPolicy are not an object: write each as a member of /,
  ],
  'a gpuPolicy that is a text': [
    { gpuPolicy: 'strict' },
    /^the options of gpuPolicy are not an object: write each as a member of /,
  ],
  'a fetch that is no function': [{ fetch: {} }, /^fetch is not a function: give one, or leave it out$/],
  'an onVerdict that is no function': [
    { onVerdict: 'log' },
    /^onVerdict is not a function: give one, or leave it out$/,
  ],
  'a manifest host without TLS': [{ cdnBaseUrl: 'http://x' }, /^cdnBaseUrl .* such as https:\/\/cdn\./],
  'a collateral host without TLS': [
    { collateralUrls: { amd: 'http://x' } },
    /^collateralUrls\.amd .*kdsintf/,
  ],
  'an empty manifest': [
    { manifest: '' },
    /^manifest is empty: give its JSON text as it was published, or leave it out for no pin$/,
  ],
  'a manifest without a byte': [
    { manifest: new Uint8Array() },
    /^manifest is empty: give its JSON text as it was published, or leave it out for no pin$/,
  ],
  ...Object.fromEntries(
    [{}, 7, true, [1]].map((manifest) => [
      `a manifest that is ${JSON.stringify(manifest)}`,
      [{ manifest }, /^manifest is neither a text nor a Uint8Array: .*JSON text/] as const,
    ]),
  ),
  'the hash of a manifest': [{ manifest: 'ab'.repeat(32) }, /^manifest is no JSON: .* not its hash/],
  'an AbortController as its signal': [
    { signal: new AbortController() as never },
    /^signal is not an AbortSignal: give the signal of an AbortController$/,
  ],
  'a salt of 31 bytes': [{ promptCacheSalt: SALT.slice(0, 31) }, /^promptCacheSalt .* 32 bytes/],
  'a salt with half a character': [{ promptCacheSalt: `${SALT}\ud800` }, /^promptCacheSalt/],
  'an empty key': [{ apiKey: '' }, /^apiKey .* is empty: give the key$/],
  'a key with a line end': [{ apiKey: `${KEY}\n` }, /^apiKey .* ends with a blank or a line break/],
  'a key with its scheme': [{ apiKey: `Bearer ${KEY}` }, /^apiKey .* begins with "Bearer"/],
  'a key with an umlaut': [
    { apiKey: `${KEY}ü` },
    /^apiKey .* no API key has: give the key alone, plain ASCII$/,
  ],
  'a key that is a function': [{ apiKey: () => KEY }, /^apiKey .* is not a text: give the key as a string$/],
  'a key that is a number': [{ apiKey: 1 }, /^apiKey .* is not a text: give the key as a string$/],
  'a verificationTimeout of 0': [{ verificationTimeout: 0 }, /^verificationTimeout .* of ms from 1 .*: 0$/],
  'a streamIdleTimeout beyond what a timer takes': [
    { streamIdleTimeout: 2 ** 31 },
    /^streamIdleTimeout is not/,
  ],
  'an endless verificationTimeout': [
    { verificationTimeout: Number.POSITIVE_INFINITY },
    /^verificationTimeout is not/,
  ],
  'a gracePeriodHours of half an hour': [
    { gpuPolicy: { gracePeriodHours: 0.5 } },
    /^gpuPolicy\.gracePeriodHours is not .* of hours from 0/,
  ],
  'a misspelled member of gpuPolicy': [
    { gpuPolicy: { allowUnkown: false } },
    /^allowUnkown .* of gpuPolicy\. Did you mean allowUnknown\?/,
  ],
  'a member of gpuPolicy that is a text': [
    { gpuPolicy: { allowUnknown: 'false' } },
    /^gpuPolicy\.allowUnknown is not true or false: give one of them, without quotes$/,
  ],
  'an unknown member of collateralUrls': [
    { collateralUrls: { url: 'https://x' } },
    /^url is not an option of collateralUrls\. The README lists them all\.$/,
  ],
  'a misspelled member of collateralUrls': [
    { collateralUrls: { amb: 'https://x' } },
    /^amb .* Did you mean amd\?/,
  ],
  ...Object.fromEntries(
    Object.entries(WRONG_ROOTS).map(([what, [unsafeTrustRoots, message]]) => [
      what,
      [{ ...LOCAL, unsafeTrustRoots }, message] as const,
    ]),
  ),
};

/** Codes that a program with the library never meets: it has no port, no clients, no limits and no files. */
const PROXY_ALONE = [
  ...['invalid_host', 'origin_forbidden', 'client_forbidden', 'client_unknown', 'service_key_rejected'],
  ...['requests_per_minute_reached', 'tokens_per_day_reached', 'max_concurrent_reached'],
  ...['max_in_flight_reached', 'upload_too_slow', 'too_many_uploads', 'too_many_responses'],
  ...['limits_unavailable', 'manifest_log_failed', 'verify_input_invalid', 'listen_failed'],
  ...['receipts_unavailable', 'receipts_unreadable', 'websocket_unsupported', 'resources_exhausted'],
];

/** Hosts of the real service, as somebody could spell them. */
const PRODUCTION: readonly Partial<PrivatemodeOptions>[] = [
  {},
  { apiEndpoint: 'https://API.privatemode.ai:8443', cdnBaseUrl: 'https://localhost:1' },
  { apiEndpoint: 'https://api.privatemode.ai.', cdnBaseUrl: 'https://localhost:1' },
  { apiEndpoint: 'https://api.privatemode%2eai', cdnBaseUrl: 'https://localhost:1' },
  { apiEndpoint: 'privatemode.ai', manifest: '{}' },
  { apiEndpoint: 'https://localhost:1' },
  { apiEndpoint: 'https://localhost:1', cdnBaseUrl: 'https://cdn.confidential.cloud/' },
];

describe('a client of the library', { timeout: 600_000 }, () => {
  let simulator: Simulator;
  let base: ReturnType<typeof clientOptions>;
  const opened: { close(): void }[] = [];
  const environment = process.env[unset];

  before(async () => {
    delete process.env[unset];
    simulator = await startTestSimulator({ apiKey: KEY });
    base = { ...clientOptions(simulator), apiKey: KEY };
  });
  after(async () => {
    if (environment !== undefined) process.env[unset] = environment;
    for (const client of opened) client.close();
    await base.network.destroy();
    await simulator.close();
  });

  function open({ network: _, ...options }: Partial<ReturnType<typeof clientOptions>> = {}): PrivatemodeAI {
    const { network: __, ...deployment } = base;
    const client = new PrivatemodeAI({ ...deployment, maxRetries: 0, ...options });
    opened.push(client);
    return client;
  }

  /** A client that waits for short pauses between its attempts. */
  function quick({ network: _, ...options }: Partial<ReturnType<typeof clientOptions>> = {}): PrivatemodeAI {
    const { network: __, ...deployment } = base;
    const pauses = { firstBackoff: 250, longestBackoff: 500 };
    const fetch = fetchWith({ ...deployment, ...options }, pauses);
    const client = new PrivatemodeAI({ maxRetries: 0, fetch });
    opened.push(client);
    return client;
  }

  for (const [what, [options, message]] of Object.entries(REFUSED)) {
    it(`throws config_invalid when its options contain ${what}`, () => {
      for (const make of [createPrivatemodeFetch, (given: object) => new PrivatemodeAI(given)]) {
        assert.throws(
          () => make({ fetch: nothing, ...options }),
          (thrown: PrivatemodeError) => {
            assert.equal(thrown.code, 'config_invalid');
            assert.match(thrown.message, message);
            assert.doesNotMatch(inspect(thrown) + thrown.remedy, /nobody-may-see|--/);
            return true;
          },
        );
      }
    });
  }

  for (const options of PRODUCTION) {
    it(`throws unsafe_roots_refused with custom hardware roots for the real service: ${JSON.stringify(options)}`, () => {
      assert.throws(
        () => createPrivatemodeFetch({ fetch: nothing, unsafeTrustRoots: ROOTS, ...options }),
        (thrown: PrivatemodeError) =>
          thrown.code === 'unsafe_roots_refused' && /privatemode\.ai|cloud/.test(thrown.message),
      );
    });
  }

  it('accepts custom hardware roots for a simulator with a manifest of its own', () => {
    const options = { apiKey: KEY, apiEndpoint: 'localhost:1', manifest: '{}', unsafeTrustRoots: ROOTS };
    createPrivatemodeFetch(options).close();
  });

  it('throws config_invalid without a key, and the error names apiKey and PRIVATEMODE_API_KEY', () => {
    for (const make of [createPrivatemodeFetch, (given: object) => new PrivatemodeAI(given)]) {
      for (const options of [{}, { apiKey: undefined }]) {
        assert.throws(() => make({ fetch: nothing, ...options }), {
          code: 'config_invalid',
          message: 'apiKey is missing, and PRIVATEMODE_API_KEY is not set: give one of them',
        });
      }
    }
  });

  it('takes its key from the environment', async () => {
    process.env[unset] = KEY;
    try {
      const client = open({ apiKey: undefined });
      assert.equal((await client.verify()).outcome, 'accepted');
    } finally {
      delete process.env[unset];
    }
  });

  it('fails requests with 401 if the service refuses its key', async () => {
    const client = open({ apiKey: 'another-key' });
    await assert.rejects(client.chat.completions.create(HELLO), { status: 401, code: 'api_key_rejected' });
  });

  it('calls onVerdict and onEpoch; an exception of theirs stops no request and becomes an uncaught exception', async (t) => {
    const verdicts: ClientVerdict[] = [];
    const protections: Protection[] = [];
    const uncaught: unknown[] = [];
    const { promise: all, resolve } = Promise.withResolvers<void>();
    const runners = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    process.on('uncaughtException', (thrown) => {
      if (uncaught.push(thrown) === 2) resolve();
    });
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
    await all;
    assert.deepEqual(uncaught.map((thrown) => (thrown as Error).message).sort(), [
      'of onEpoch',
      'of onVerdict',
    ]);
    assert.deepEqual(
      verdicts.map(({ outcome }) => outcome),
      ['accepted'],
    );
    assert.deepEqual(protections, [client.protection]);
  });

  it('fails requests with shutting_down once signal or close() closed it, before or after its first request', async () => {
    const failed = { status: 503, code: 'shutting_down' };
    // With retries, as everybody has them: the SDK would wait and ask again.
    const early = new PrivatemodeAI({ apiKey: KEY, fetch: nothing as never });
    opened.push(early);
    early.close();
    await assert.rejects(
      early.chat.completions.create(HELLO),
      (error: InstanceType<typeof PrivatemodeAI.APIError>) => {
        const { status, code, headers } = error;
        assert.deepEqual({ status, code }, failed);
        assert.equal(headers?.get('x-should-retry'), 'false'); // so it fails at once
        return true;
      },
    );
    const told = { code: 'shutting_down', message: 'the client was closed', remedy: 'Make a new client.' };
    await assert.rejects(early.verify(), told);

    const aborted = open({ fetch: nothing as never, signal: AbortSignal.abort() });
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

  it('shares the session of a fetch that createPrivatemodeFetch made, and refuses other options beside it', async () => {
    const { network: _, ...options } = base;
    const made = createPrivatemodeFetch(options);
    const client = new PrivatemodeAI({ fetch: made, maxRetries: 0 });
    opened.push(client);
    await made.verify();
    await client.chat.completions.create(HELLO);
    assert.deepEqual(client.protection, made.protection());
    const refused = {
      code: 'config_invalid',
      message: /^manifest, apiKey: a client with the fetch of another/,
    };
    const others = { apiKey: KEY, manifest: '{}' };
    assert.throws(() => new PrivatemodeAI({ fetch: made, ...others }), refused);
    const nested = { code: 'config_invalid', message: /^fetch was made by createPrivatemodeFetch/ };
    assert.throws(() => createPrivatemodeFetch({ ...others, fetch: made }), nested);
  });

  it('completes a response if close() is called in the middle of it', async () => {
    const client = open({});
    const stream = await client.chat.completions.create({ ...HELLO, model: 'sim-5x50', stream: true });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 1) client.close();
    assert.ok(chunks >= 5, `${chunks} chunks`);
  });

  it('fails a request with 503 and verify() as unavailable if verificationTimeout is too short', async () => {
    const impatient = open({ apiEndpoint: 'https://localhost:1', verificationTimeout: 100 });
    await assert.rejects(impatient.chat.completions.create(HELLO), { status: 503, code: 'not_ready' });
    const unavailable = ({ verdict }: VerificationError) => verdict.outcome === 'unavailable';
    await assert.rejects(impatient.verify(), unavailable);
  });

  for (const [wrong, host, code, words] of [
    [
      'apiEndpoint',
      'localhost:PORT',
      'upstream_unreachable',
      /^502 localhost:\d+ refused the connection\. Check .* options? /,
    ],
    [
      'cdnBaseUrl',
      'no-such-host.invalid',
      'manifest_unavailable',
      /fetched: no-such-host\.invalid does not resolve.* option /,
    ],
  ] as const) {
    it(`fails a request soon if ${wrong} is wrong, with an error after which SDKs do not retry`, async () => {
      const url = `https://${host.replace('PORT', String(await freePort()))}`;
      await failsSoon(quick({ [wrong]: url }), code, words);
    });
  }

  it('fails a request soon if the runtime does not trust the CA of the service, and says which CA to trust', async () => {
    const trustsVendorsOnly = globalThis.fetch;
    for (const options of [{}, { manifest: Buffer.from(simulator.manifest) }]) {
      await failsSoon(
        quick({ ...options, fetch: trustsVendorsOnly }),
        'upstream_tls_untrusted',
        /^502 certificate signed by unknown authority: localhost:\d+ .*the ca\.pem of a simulator: NODE_EXTRA_CA_CERTS/,
      );
    }
  });

  /** Asks with the retries that everybody has. */
  async function failsSoon(client: PrivatemodeAI, code: string, words: RegExp): Promise<void> {
    const { maxRetries } = new PrivatemodeAI({ apiKey: KEY });
    assert.ok(maxRetries > 0);
    const startedAt = performance.now();
    await assert.rejects(
      client.withOptions({ maxRetries }).chat.completions.create(HELLO),
      (thrown: InstanceType<typeof PrivatemodeAI.APIError>) => {
        assert.deepEqual([thrown.code, thrown.headers?.get('x-should-retry')], [code, 'false']);
        assert.match(thrown.message, words);
        return true;
      },
    );
    const took = performance.now() - startedAt;
    assert.ok(took < 10_000, `${took} ms, where one verificationTimeout has 30 s`);
  }

  it('waits for a service that answered before, and fails after verificationTimeout with an error that SDKs retry', async () => {
    let asked = 0;
    const refused = new TypeError('fetch failed', {
      cause: Object.assign(new Error(), { code: 'ECONNREFUSED' }),
    });
    const client = quick({
      verificationTimeout: 2_000,
      manifest: Buffer.from(simulator.manifest),
      fetch: async () => {
        asked += 1;
        if (asked > 1) throw refused;
        return new Response('', { status: 503 });
      },
    });
    await assert.rejects(
      client.chat.completions.create(HELLO),
      ({ status, code, message, headers }: InstanceType<typeof PrivatemodeAI.APIError>) => {
        assert.deepEqual([status, code, headers?.get('x-should-retry')], [503, 'not_ready', null]);
        assert.match(
          message,
          /was not verified within 2 s: localhost:\d+ refused the connection\. Check the network/,
        );
        return true;
      },
    );
    assert.ok(asked > 3, 'the first renewal has three attempts');
  });

  it('refuses a runtime without Promise.withResolvers as too old, and names Node 22', (t) => {
    const { withResolvers } = Promise;
    Object.assign(Promise, { withResolvers: undefined });
    t.after(() => Object.assign(Promise, { withResolvers }));
    const tooOld = { code: 'config_invalid', message: /too old .* Node 22/ };
    assert.throws(() => createPrivatemodeFetch({ apiKey: KEY }), tooOld);
    assert.throws(() => new PrivatemodeAI({ apiKey: KEY }), tooOld);
  });

  it('has remedies that mention no flag and no page of the proxy', () => {
    for (const [code, { remedy }] of Object.entries(ERRORS)) {
      if (!PROXY_ALONE.includes(code)) assert.doesNotMatch(remedy, /--|proxy|docs\//i, code);
    }
    const { remedy } = toApplication(new PrivatemodeError('manifest_mismatch', 'another manifest'));
    assert.match(
      remedy,
      /^Try again in a moment: a deployment is being replaced\. If it persists, report it to the publisher/,
    );
    const untrusted = new PrivatemodeError('upstream_tls_untrusted', 'the CDN has an unknown authority');
    const { remedy: ofCause } = untrusted;
    const mismatch = new PrivatemodeError('manifest_mismatch', 'm', { cause: untrusted, remedy: ofCause });
    assert.match(toApplication(mismatch).remedy, /^Have the runtime trust the CA/);
    const clock = new PrivatemodeError('attestation_failed', 'not yet valid', { remedy: CLOCK_REMEDY });
    assert.equal(toApplication(clock).remedy, CLOCK_REMEDY);
  });

  it('throws errors that print with their code and remedy, and without undefined members', () => {
    assert.throws(
      () => createPrivatemodeFetch({ apiKey: '' }),
      (thrown: PrivatemodeError) => {
        const shown = inspect(thrown);
        assert.match(shown, /code: 'config_invalid',\s+remedy: 'See the options in the README/);
        assert.doesNotMatch(shown, /undefined/);
        return true;
      },
    );
  });

  it('names CORS as a possible cause if a host cannot be reached from a web page', (t) => {
    assert.equal(unreachable('api.example', undefined).message, 'api.example cannot be reached');
    Object.assign(globalThis, { location: { origin: 'https://page.example' } });
    t.after(() => Reflect.deleteProperty(globalThis, 'location'));
    const cause = unreachable('api.example', undefined);
    assert.equal(
      cause.message,
      'api.example cannot be reached, or does not allow pages of https://page.example to ask it (CORS)',
    );
    assert.match(cause.remedy, /CORS/);
    for (const code of ['manifest_unavailable', 'not_ready'] as const)
      assert.equal(toApplication(new PrivatemodeError(code, 'later', { cause })).remedy, cause.remedy);
  });

  it('shares options and verification with its copies, and refuses a copy with another key, host or manifest', async () => {
    let attestations = 0;
    const client = open({
      fetch: (url, init) => {
        if (String(url).endsWith('/attest')) attestations += 1;
        return base.fetch?.(url, init) ?? assert.fail('no network');
      },
    });
    const copy = client.withOptions({ maxRetries: 1, timeout: 5_000 });
    assert.ok(copy instanceof PrivatemodeAI);
    await client.chat.completions.create(HELLO);
    assert.equal(attestations, 1);
    await copy.chat.completions.create(HELLO);
    assert.equal(attestations, 1);
    assert.deepEqual(copy.protection, client.protection);
    const others: Record<string, unknown>[] = [
      { apiKey: 'of-somebody-else' },
      { baseURL: 'https://localhost:1/v1' },
      { promptCacheSalt: SALT },
      { manifest: '{}' },
      { gpuPolicy: { allowUnknown: false } },
      { apiEndpoint: 'https://localhost:1' },
      { responsesApi: true },
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
    assert.equal(attestations, 1);
  });

  it('shows neither its key nor its salt if the client or one of its errors is printed', async () => {
    const shown: unknown[] = [];
    const client = open({ promptCacheSalt: SALT });
    await client.chat.completions.create(HELLO);
    const anthropic = await client.anthropic();
    const lost = open({ apiEndpoint: 'https://localhost:1', verificationTimeout: 300 });
    for (const failing of [
      () => lost.chat.completions.create(HELLO),
      () => client.chat.completions.create({ ...HELLO, model: 'sim-error-400' }),
      () => client.images.generate({ prompt: 'x' }),
    ]) {
      await failing().catch((thrown: unknown) => shown.push(thrown));
    }
    assert.equal(shown.length, 3);
    shown.push(client, client.withOptions({}), anthropic, lost, await client.verify());
    await lost.verify().catch((thrown: unknown) => shown.push(thrown));
    assert.equal(shown.length, 9);
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

  it('has the options of docs/client.md, with the same defaults', () => {
    const source = readFileSync(join(ROOT, 'lib/client-library/options.ts'), 'utf8');
    const [, declared] = /export interface PrivatemodeOptions {\n(.*?)\n}\n/s.exec(source) as unknown as [
      string,
      string,
    ];
    const names = [...declared.matchAll(/^ {2}readonly (\w+)\?:/gm)].map(([, name]) => name as string);
    const page = readFileSync(join(ROOT, 'docs/client.md'), 'utf8')
      .split('## Options\n')[1]!
      .split('\n## ')[0]!;
    const rows = [...page.matchAll(/^\| `(\w+)` \| (.*?) ?\| .* \|$/gm)];
    assert.deepEqual(rows.map(([, name]) => name as string).sort(), names.sort());
    const defaults = readOptions({ apiKey: KEY });
    for (const [, name, shown] of rows as unknown as [string, string, string][]) {
      const { [name]: value } = defaults as Record<string, unknown>;
      if (value instanceof URL) assert.equal(shown, `\`${value.origin}\``);
      else if (typeof value === 'number') assert.equal(shown, `${value.toLocaleString('en-US')} ms`);
      else if (name === 'cdnBaseUrl') assert.equal(shown, `\`${String(value).replace(/\/$/, '')}\``);
      else if (name === 'collateralUrls')
        assert.equal(
          shown,
          Object.values(value as object)
            .map((url) => `\`${url}\``)
            .join(', '),
        );
      else if (value === undefined || value === KEY) assert.doesNotMatch(shown, /https:|\d/);
    }
  });

  for (const engine of ['node', 'portable']) {
    it(`with the ${engine} engine lets a process end after its last request`, async () => {
      const directory = temporaryDirectory('client-ends-');
      writeFileSync(join(directory, 'ca.pem'), simulator.caPem);
      const { network: _, fetch: __, ...options } = base;
      const program = `
        import { PrivatemodeAI } from ${JSON.stringify(join(ROOT, 'lib/client-library/index.ts'))};
        const client = new PrivatemodeAI(${JSON.stringify(options)});
        const stream = await client.chat.completions.create({ ...${JSON.stringify(HELLO)}, stream: true });
        for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
        if (!client.protection) throw new Error('not protected');
      `;
      const command = [process.execPath, `--conditions=${engine}`, '--input-type=module', '--eval', program];
      const { status, stdout, stderr } = await runIn(ROOT, command as [string, ...string[]], {
        NODE_EXTRA_CA_CERTS: join(directory, 'ca.pem'),
      });
      assert.equal(status, 0, stderr);
      assert.equal(stdout.trim(), 'hello');
    });
  }
});
