/** Which options a client takes; what would mislead is refused before anything is sent. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import OpenAI, { type ClientOptions } from 'openai';
import { PRODUCTION_ROOTS } from '../../lib/attestation/roots/production.ts';
import { createPrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { PrivatemodeAI, type PrivatemodeError } from '../../lib/client-library/index.ts';
import type { PrivatemodeOptions } from '../../lib/client-library/options.ts';
import { API_KEY, BASE_URL, divideOptions, ownOptions } from '../../lib/client-library/read-options.ts';

const KEY = 'pm-key-that-nobody-may-see-4f1d9a';
const SALT = 'salt-that-nobody-may-see-77c0b2e1d9';
const PIN = '{"Policies":{}}';
const BYTES = new TextEncoder().encode(PIN);
const { ark, ask } = PRODUCTION_ROOTS.snp.Genoa!;
const ROOTS = { snp: { Genoa: { ark, ask } }, tdx: undefined };

/** A fetch that must not be used. */
const nothing = (): never => assert.fail('something was sent');
const BASE = { apiKey: KEY, fetch: nothing };

const makeFetch = (options: unknown): unknown => createPrivatemodeFetch(options as PrivatemodeOptions);
const makeClient = (options: unknown): unknown => new PrivatemodeAI(options as object);
const BOTH = [makeClient, makeFetch];

function refuses(options: unknown, message: RegExp, makes = BOTH, code = 'config_invalid'): void {
  for (const make of makes) {
    assert.throws(
      () => make(options),
      (thrown: PrivatemodeError) => {
        assert.equal(thrown.code, code, thrown);
        assert.match(thrown.message, message);
        assert.doesNotMatch(inspect(thrown) + thrown.remedy, /nobody-may-see|--/);
        return true;
      },
    );
  }
}

/** `value` is given under this name beside what every client needs. */
const given = (name: string, value: unknown): object => ({ ...BASE, [name]: value });

/** Names that look like one of ours, which the error names. */
const MISSPELT: readonly (readonly [name: string, meant: string])[] = [
  ['manifets', 'manifest'],
  ['onManifestUpdate', 'manifest'],
  ['endpoint', 'apiEndpoint'],
  ['api_key', 'apiKey'],
  ['trustRoots', 'unsafeTrustRoots'],
];

/** Names of another host, another way there, or another credential. */
const LEADS_ELSEWHERE = [
  ...['baseURL', 'apiBaseURL', 'dataResidency', 'provider', 'fetchOptions', 'x509Transport'],
  ...['adminAPIKey', 'workloadIdentity', 'credential', 'credentials'],
];

const SDK: Readonly<Record<string, unknown>> = {
  timeout: 5_000,
  maxRetries: 0,
  organization: 'o',
  defaultHeaders: { 'x-mine': '1', authorization: null },
  optionOfTheNextMajor: 1,
};

/** Values that are wrong, for each part of the rule of an option. */
const WRONG: Readonly<Record<string, readonly unknown[]>> = {
  apiKey: ['', `${KEY}\n`, `Bearer ${KEY}`, `${KEY}ü`, () => KEY],
  apiEndpoint: [
    ...['http://localhost:1', 'https://localhost:1/v1', `https://a:${KEY}@localhost`, `https://x?${KEY}`],
    ...['localhost', null],
  ],
  manifest: ['', new Uint8Array(), { length: 1 }, null, undefined],
  cdnBaseUrl: ['http://x'],
  promptCacheSalt: [SALT.slice(0, 31), `${SALT}\ud800`],
  responsesApi: ['yes'],
  verificationTimeout: [0, 0.5, null],
  firstByteTimeout: [Number.POSITIVE_INFINITY],
  streamIdleTimeout: [2 ** 31],
  fetch: [{}],
  signal: [new AbortController()],
  onVerdict: ['log'],
  onEpoch: [null],
};

/** The same inside of options that are objects, and what the error says. */
const WRONG_INSIDE: readonly (readonly [options: object, message: RegExp])[] = [
  [{ gpuPolicy: null }, /^the options of gpuPolicy are not a plain object/],
  [{ gpuPolicy: { allowUnkown: false } }, /^allowUnkown .* of gpuPolicy\. Did you mean allowUnknown\?$/],
  [{ gpuPolicy: { allowUnknown: 'false' } }, /^allowUnknown is not true or false/],
  [{ gpuPolicy: { gracePeriodHours: 0.5 } }, /^gracePeriodHours is not .* of hours from 0/],
  [{ collateralUrls: { amd: 'http://x' } }, /^amd is not an https URL/],
  [{ collateralUrls: { url: 'https://x' } }, /^url is not .* The README lists them all\.$/],
  [{ unsafeTrustRoots: { snp: { Turin: {} } } }, /^Turin is not an option of snp/],
  [{ unsafeTrustRoots: { snp: {}, tdx: { root: BYTES } } }, /^root is not the PEM text/],
];

/** Hosts of the real service, as somebody could spell them. */
const PRODUCTION: readonly Partial<PrivatemodeOptions>[] = [
  {},
  { apiEndpoint: 'https://API.privatemode.ai:8443', cdnBaseUrl: 'https://localhost:1' },
  { apiEndpoint: 'https://api.privatemode.ai.', cdnBaseUrl: 'https://localhost:1' },
  { apiEndpoint: 'https://api.privatemode%2eai', manifest: PIN },
  { apiEndpoint: 'https://localhost:1', cdnBaseUrl: 'https://cdn.confidential.cloud/' },
];

describe('the options of the client library', () => {
  for (const [name, meant] of MISSPELT) {
    it(`refuse ${name}, and name ${meant}`, () =>
      refuses(given(name, 'x'), new RegExp(`^${name} is not an option of .* Did you mean ${meant}\\?$`)));
  }

  for (const name of LEADS_ELSEWHERE) {
    it(`refuse ${name}, which names another host, network or credential`, () =>
      refuses(given(name, 'https://x/v1'), new RegExp(`^${name} is refused: the only host is apiEndpoint`)));
  }

  for (const [name, values] of Object.entries(WRONG))
    it(`refuse a wrong ${name}, and quote no value`, () => {
      for (const value of values) refuses(given(name, value), new RegExp(`^${name} is not `));
    });

  it('refuse wrong members of options that are objects', () => {
    for (const [options, message] of WRONG_INSIDE) refuses({ ...BASE, ...options }, message);
  });

  it('refuse a pin without a value under a name that looks like one', () => {
    for (const value of [undefined, null]) refuses(given('manifestBytes', value), /^manifestBytes is not/);
    for (const name of ['pin', 'pinnedManifest', 'cdnUrl'])
      refuses(given(name, 'x'), new RegExp(`^${name} is not`));
  });

  it('leave those of the SDK to the SDK, and refuse them in createPrivatemodeFetch', () => {
    for (const [name, value] of Object.entries(SDK)) {
      assert.deepEqual(divideOptions(given(name, value)).sdk, { [name]: value });
      refuses(given(name, value), new RegExp(`^${name} is not an option of createPrivatemodeFetch\\.`), [
        makeFetch,
      ]);
    }
    const client = new PrivatemodeAI({ ...BASE, maxRetries: 7, timeout: 1_234 });
    assert.deepEqual([client.maxRetries, client.timeout], [7, 1_234]);
  });

  it('are read once, so that a getter cannot return another value later', () => {
    let reads = 0;
    const options = {
      ...BASE,
      get manifest() {
        return ++reads === 1 ? PIN : undefined;
      },
    };
    assert.equal(ownOptions(options).manifest, PIN);
    assert.equal(reads, 1);
  });

  it('are a plain object: a pin that is inherited is refused, and one that is hidden counts', () => {
    class Named {
      apiKey = KEY;
      get manifest(): string {
        return PIN;
      }
    }
    const inherited = [
      ...[new Named(), Object.create({ manifest: PIN }), { __proto__: { manifest: PIN } }],
      Object.create(Object.assign(Object.create(null), { manifest: PIN })),
      new Map([['manifest', PIN]]),
    ];
    for (const options of [...inherited, 'key', 7, null, [], () => {}, new URL('https://localhost')])
      refuses(options, /^the options of (?:PrivatemodeAI|createPrivatemodeFetch) are not a plain object/);
    const hidden = Object.defineProperty({}, 'manifest', { value: BYTES, enumerable: false });
    for (const options of [hidden, Object.assign(Object.create(null), { manifest: BYTES })])
      assert.equal(divideOptions(options).own.manifest, BYTES);
    refuses(JSON.parse('{"apiKey":"k","__proto__":{"manifest":""}}'), /^__proto__ is not/, [makeFetch]);
  });

  it('take what the SDK hands to its copy, also from the environment', (t) => {
    const handed: unknown[] = [];
    class Watched extends OpenAI {
      constructor(options: ClientOptions) {
        super(options);
        handed.push(options);
      }
    }
    const environment = { OPENAI_ADMIN_KEY: 'x', OPENAI_ORG_ID: 'o' };
    t.after(() => {
      for (const name of Object.keys(environment)) delete process.env[name];
    });
    Object.assign(process.env, environment);
    const sdk = { apiKey: API_KEY, adminAPIKey: null, baseURL: BASE_URL, fetch: nothing, timeout: 1 };
    new Watched(sdk).withOptions({ maxRetries: 1 });
    const { own, sdk: theirs } = divideOptions(handed[1]);
    assert.deepEqual(own, { apiKey: API_KEY, fetch: nothing });
    assert.deepEqual([theirs['timeout'], theirs['maxRetries'], theirs['organization']], [1, 1, 'o']);
  });

  for (const options of PRODUCTION) {
    it(`refuse hardware roots for the real service: ${JSON.stringify(options)}`, () => {
      const unsafe = { ...BASE, unsafeTrustRoots: ROOTS, ...options };
      refuses(
        unsafe,
        /^unsafeTrustRoots is refused for .*(?:privatemode\.ai|cloud)/,
        BOTH,
        'unsafe_roots_refused',
      );
    });
  }

  it('need a key, which may be in the environment', (t) => {
    const { PRIVATEMODE_API_KEY: known } = process.env;
    t.after(() => {
      if (known === undefined) delete process.env['PRIVATEMODE_API_KEY'];
      else process.env['PRIVATEMODE_API_KEY'] = known;
    });
    delete process.env['PRIVATEMODE_API_KEY'];
    const missing = /^apiKey is missing, and PRIVATEMODE_API_KEY is not set: give one of them$/;
    for (const options of [{}, { apiKey: undefined }]) refuses({ fetch: nothing, ...options }, missing);
    process.env['PRIVATEMODE_API_KEY'] = `${KEY}\n`;
    refuses({ fetch: nothing }, /^PRIVATEMODE_API_KEY is not a key/);
    process.env['PRIVATEMODE_API_KEY'] = KEY;
    for (const make of BOTH) assert.ok(make({ fetch: nothing }));
  });
});
