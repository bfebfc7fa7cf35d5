/**
 * Which options a client takes, under which names; what none of them would read is refused, and nothing is
 * sent.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import OpenAI, { type ClientOptions } from 'openai';
import PreviousOpenAI, { type ClientOptions as PreviousClientOptions } from 'openai-previous';
import { createPrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { PrivatemodeAI, type PrivatemodeError } from '../../lib/client-library/index.ts';
import { API_KEY, BASE_URL, divideOptions, ownOptions } from '../../lib/client-library/option-names.ts';
import type { PrivatemodeOptions } from '../../lib/client-library/options.ts';

const PIN = '{"Policies":{}}';
const BYTES = new TextEncoder().encode(PIN);

/** A fetch that must not be used. */
const nothing = (): never => assert.fail('something was sent');
const BASE = { apiKey: 'k', fetch: nothing };

const makeFetch = (options: unknown): unknown => createPrivatemodeFetch(options as PrivatemodeOptions);
const makeClient = (options: unknown): unknown => new PrivatemodeAI(options as object);
const BOTH = [makeClient, makeFetch];

function refuses(makes: readonly ((options: unknown) => unknown)[], options: unknown, message: RegExp): void {
  for (const make of makes) {
    assert.throws(
      () => make(options),
      (thrown: PrivatemodeError) => {
        assert.equal(thrown.code, 'config_invalid', thrown);
        assert.match(thrown.message, message);
        return true;
      },
    );
  }
}

/** `value` is given under this name beside what every client needs. */
const given = (name: string, value: unknown): object => ({ ...BASE, [name]: value });

const UNKNOWN: readonly (readonly [string, RegExp])[] = [
  ['manifests', /^manifests is not an option of PrivatemodeAI\. Did you mean manifest\?$/],
  ['Manifest', /^Manifest is not .* Did you mean manifest\?$/],
  ['apiEndPoint', /^apiEndPoint is not .* Did you mean apiEndpoint\?$/],
  ['api_key', /^api_key is not .* Did you mean apiKey\?$/],
  ['verification_timeout', /^verification_timeout is not .* Did you mean verificationTimeout\?$/],
  ['endpoint', /^endpoint is not .* Did you mean apiEndpoint\?$/],
  ['maxRetry', /^maxRetry is not an option of PrivatemodeAI\. The README lists them all\.$/],
  ['httpAgent', /^httpAgent is not an option of PrivatemodeAI\. The README lists them all\.$/],
  ['openAIOptions', /^openAIOptions is not an option of PrivatemodeAI\. The README lists them all\.$/],
  ['onSecretUpdate', /^onSecretUpdate is not an option/],
  ['constructor', /^constructor is not an option/],
  ['hasOwnProperty', /^hasOwnProperty is not an option/],
  ['', /^ is not an option/],
];

/** What names another host, another way there, or another credential. */
const REFUSED: Readonly<Record<string, readonly [unknown, RegExp]>> = {
  baseURL: ['https://localhost/v1', /the only host is apiEndpoint$/],
  dataResidency: ['eu', /the only host is apiEndpoint$/],
  provider: [{}, /the only host is apiEndpoint$/],
  fetchOptions: [{ dispatcher: {} }, /the only network is the option fetch/],
  x509Transport: [{}, /the only network is the option fetch/],
  adminAPIKey: ['key', /the only credential is apiKey/],
  workloadIdentity: [{}, /the only credential is apiKey/],
  credential: [{}, /the only credential is apiKey/],
};

/** Values that would be misread. */
const MISREAD: readonly (readonly [name: string, value: unknown, message: string])[] = [
  ['timeout', '60', 'timeout is no number of ms: write 60000 for a minute, without quotes'],
  ['unsafeTrustRoots', '/roots', 'unsafeTrustRoots takes the PEM texts of certificates in { }, not a path'],
  [
    'manifestPath',
    'm.json',
    'manifestPath is refused: it is manifest here, which takes the text of the file',
  ],
  [
    'manifestPath',
    undefined,
    'manifestPath is undefined, which pins nothing; leave it out to follow the published manifest',
  ],
];

const SDK: Readonly<Record<string, unknown>> = {
  timeout: 5_000,
  maxRetries: 0,
  organization: 'o',
  project: 'p',
  webhookSecret: 'w',
  defaultQuery: { a: 'b' },
  defaultHeaders: { 'x-mine': '1', authorization: null },
  dangerouslyAllowBrowser: true,
  logLevel: 'off',
  logger: console,
};

describe('the client library', () => {
  for (const [name, message] of UNKNOWN) {
    it(`refuses the unknown option "${name}"`, () => {
      refuses([makeClient], given(name, 'x'), message);
      refuses(
        [makeFetch],
        given(name, 'x'),
        new RegExp(`^${name} is not an option of createPrivatemodeFetch`),
      );
    });
  }

  for (const [name, value, message] of MISREAD) {
    it(`refuses the option ${name}: ${JSON.stringify(value)}, and says what to write`, () =>
      refuses([makeClient], given(name, value), new RegExp(`^${message}$`)));
  }

  it('accepts timeout: null, and passes it to the SDK', () => {
    assert.deepEqual(divideOptions(given('timeout', null)).sdk, { timeout: null });
  });

  it('refuses an unknown option that is inherited, not enumerable, frozen or a getter', () => {
    class Named {
      apiKey = 'k';
      get pin(): string {
        return PIN;
      }
    }
    const bare = Object.assign(Object.create(null), { ...BASE, pin: PIN });
    const hidden = Object.defineProperty({ ...BASE }, 'pin', { value: PIN, enumerable: false });
    const inherited = Object.create({ pin: PIN });
    const bareRoot = Object.create(Object.assign(Object.create(null), { pin: PIN }));
    for (const options of [
      new Named(),
      bare,
      hidden,
      inherited,
      bareRoot,
      Object.freeze(given('pin', PIN)),
    ]) {
      refuses(BOTH, options, /^pin is not an option/);
    }
    refuses(BOTH, JSON.parse('{"apiKey":"k","__proto__":{}}'), /^__proto__ is not an option/);
  });

  it('accepts a manifest that is inherited, not enumerable or a getter', () => {
    class Named {
      apiKey = 'k';
      get manifest(): Uint8Array {
        return BYTES;
      }
    }
    const inherited = Object.create({ manifest: BYTES });
    const hidden = Object.defineProperty({}, 'manifest', { value: BYTES, enumerable: false });
    const asPrototype = { __proto__: { manifest: BYTES } };
    const bare = Object.assign(Object.create(null), { manifest: BYTES });
    const misled = { manifest: BYTES, __proto__: null };
    const noRoot = Object.create({ manifest: BYTES, constructor: Object, __proto__: null });
    for (const options of [new Named(), inherited, hidden, asPrototype, bare, misled, noRoot]) {
      assert.equal(divideOptions(options).own.manifest, BYTES);
    }
    refuses([makeClient], { constructor: Object, manifest: BYTES, __proto__: null }, /^constructor is not/);
  });

  it('reads each option once, so that a getter cannot return another value later', () => {
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

  it('refuses options that are no object', () => {
    for (const options of ['key', 7, null, [], [['apiKey', 'k']], () => {}, true]) {
      refuses(
        [makeClient],
        options,
        /^the options of PrivatemodeAI are not an object: write each as a member of \{ \}$/,
      );
      refuses(
        [makeFetch],
        options,
        /^the options of createPrivatemodeFetch are not an object: write each as a member of \{ \}$/,
      );
    }
    for (const address of [
      'https://localhost/v1',
      new URL('https://localhost'),
      new Request('https://localhost'),
    ])
      refuses(
        [makeFetch],
        address,
        /^createPrivatemodeFetch was called with a URL as its options: .* fetch: createPriv/,
      );
    refuses([makeClient], new Map([['manifest', PIN]]), /is not an option of PrivatemodeAI/);
  });

  for (const name of ['manifest', 'manifestBytes']) {
    for (const value of [undefined, null]) {
      it(`refuses the option ${name}: ${value}, which looks as if it pinned a manifest`, () => {
        refuses(BOTH, given(name, value), new RegExp(`${name} is ${value}, which pins nothing`));
      });
    }
  }

  for (const [name, ours, value] of [
    ['apiBaseURL', 'apiEndpoint', 'https://localhost:1'],
    ['apiBaseURL', 'apiEndpoint', null],
    ['manifestBytes', 'manifest', BYTES],
    ['manifestBytes', 'manifest', ''],
  ] as const) {
    it(`refuses the option ${name} (${value === null ? value : typeof value}), and says that it is called ${ours} here`, () => {
      const message = new RegExp(`^${name} is refused: it is ${ours} here$`);
      refuses(BOTH, given(name, value), message);
      refuses(BOTH, { ...given(name, value), [ours]: PIN }, message);
    });
  }

  it('accepts unknown options that are undefined, and symbols, which SDKs pass', () => {
    const client = new PrivatemodeAI({
      ...BASE,
      ...{ unheardOf: undefined, baseURL: undefined, apiBaseURL: undefined, [Symbol('x')]: 1 },
    } as object);
    client.withOptions({ timeout: 1 }).close();
  });

  it('accepts the options that either major of the OpenAI client passes to its copy, also from the environment', (t) => {
    const handed: unknown[] = [];
    class Newest extends OpenAI {
      constructor(options: ClientOptions) {
        super(options);
        handed.push(options);
      }
    }
    class Previous extends PreviousOpenAI {
      constructor(options: PreviousClientOptions) {
        super(options);
        handed.push(options);
      }
    }
    const environment = {
      OPENAI_CUSTOM_HEADERS: 'authorization: Bearer x',
      OPENAI_ADMIN_KEY: 'x',
      OPENAI_ORG_ID: 'o',
    };
    t.after(() => {
      for (const name of Object.keys(environment)) delete process.env[name];
    });
    Object.assign(process.env, environment);
    const sdk = { apiKey: API_KEY, adminAPIKey: null, baseURL: BASE_URL, fetch: nothing, timeout: 1 };
    new Newest(sdk).withOptions({ maxRetries: 1 });
    new Previous(sdk).withOptions({ maxRetries: 1 });
    for (const options of [handed[1], handed[3]]) {
      const { own, sdk: theirs } = divideOptions(options);
      assert.deepEqual(own, { apiKey: API_KEY, fetch: nothing });
      assert.deepEqual([theirs.timeout, theirs.maxRetries, theirs.organization], [1, 1, 'o']);
    }
  });

  for (const [name, [value, message]] of Object.entries(REFUSED)) {
    it(`refuses the option ${name}, which names another host, network or credential`, () => {
      refuses(BOTH, given(name, value), new RegExp(`^${name} is refused: .*${message.source}`));
      assert.ok(makeClient(given(name, null)), 'null names nothing');
    });
  }

  for (const header of ['Authorization', 'x-api-key', 'API-Key', 'cookie', 'Proxy-Authorization']) {
    it(`refuses ${header} among the default headers`, () => {
      for (const headers of [{ [header]: 'x' }, new Headers({ [header]: 'x' }), [[header, 'x']]]) {
        const message = new RegExp(`defaultHeaders holds ${header}: the only credential is apiKey`, 'i');
        refuses([makeClient], given('defaultHeaders', headers), message);
      }
    });
  }

  it('accepts options of the OpenAI SDK in PrivatemodeAI, and refuses them in createPrivatemodeFetch', () => {
    for (const [name, value] of Object.entries(SDK)) {
      assert.deepEqual(divideOptions(given(name, value)).sdk, { [name]: value });
      refuses([makeFetch], given(name, value), /^\w+ is not an option of createPrivatemodeFetch\./);
    }
    const client = new PrivatemodeAI({ ...BASE, maxRetries: 7, timeout: 1_234 });
    assert.deepEqual([client.maxRetries, client.timeout], [7, 1_234]);
  });

  it('refuses unknown options of anthropic(), and options that name another host, network or credential', async () => {
    const client = new PrivatemodeAI({ ...BASE, fetch: nothing });
    const options: object = { baseURL: 'https://localhost', timeout: 1 };
    await assert.rejects(client.anthropic(options), {
      code: 'config_invalid',
      message: /^baseURL is refused/,
    });
    for (const name of [
      'apiKey',
      'authToken',
      'credentials',
      'config',
      'profile',
      'fetch',
      'fetchOptions',
      'maxRetry',
    ]) {
      const refused = { code: 'config_invalid', message: new RegExp(`^${name} is`) };
      await assert.rejects(client.anthropic({ [name]: 'x' } as object), refused);
    }
    const anthropic = await client.anthropic({
      maxRetries: 3,
      logLevel: 'off',
      defaultHeaders: { 'x-mine': '1' },
    });
    assert.equal(anthropic.maxRetries, 3);
  });
});
