import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Config } from '../../lib/config/config.ts';
import { FLAGS, LISTED } from '../../lib/config/flags.ts';
import { configOf, parsed, refused } from '../support/doors/config.ts';

const SALT = 'a-salt-of-exactly-thirty-two-by.';
const MANIFEST = '{"Policies":{},"ReferenceValues":{}}';
const FILES = { 'key.txt': 'sk-file\n', 'm.json': MANIFEST, 'store.url': ' redis://:in-a-file@store:6380\n' };

const TABLE = new Map([
  ['claude-*', 'big'],
  ['gpt-4o', 'big'],
  ['*', 'a/b:c'],
]);

interface Row {
  readonly flag: string;
  readonly key: keyof Config;
  readonly byDefault: unknown;
  /** Arguments → the value they stand for. */
  readonly accepts: readonly (readonly [argv: readonly string[], value: unknown])[];
  readonly refuses?: readonly string[];
}

/** The specification's flag table and our own flags, row by row. */
const ROWS: readonly Row[] = [
  {
    flag: 'api-endpoint',
    key: 'apiEndpoint',
    byDefault: { host: 'api.privatemode.ai', port: 443 },
    accepts: [
      [['--api-endpoint', 'localhost:9443'], { host: 'localhost', port: 9443 }],
      [['--api-endpoint=API.Example.COM.'], { host: 'api.example.com', port: 443 }],
      [['--api-endpoint=[::1]:9443'], { host: '::1', port: 9443 }],
      [['--api-endpoint=[2001:DB8::1]'], { host: '2001:db8::1', port: 443 }],
      [['--api-endpoint=::1'], { host: '::1', port: 443 }],
      [['--api-endpoint=10.0.0.1:1'], { host: '10.0.0.1', port: 1 }],
    ],
    refuses: [
      'https://api.example.com',
      'a:b',
      'a:',
      'a:1:2',
      'a/b',
      'a..b',
      '',
      ':443',
      '[zz]:1',
      'a:65536',
      'ａ.com',
    ],
  },
  {
    flag: 'api-key',
    key: 'apiKey',
    byDefault: undefined,
    accepts: [
      [['--api-key', 'sk-1'], { kind: 'literal', value: 'sk-1' }],
      [['--api-key=@key.txt'], { kind: 'file', path: 'key.txt' }],
      [['--api-key', '-starts-with-a-dash'], { kind: 'literal', value: '-starts-with-a-dash' }],
    ],
    refuses: ['', ' ', 'two\nlines', 'schlüssel', ' sk', '@missing.txt'],
  },
  {
    flag: 'api-key-fallback',
    key: 'apiKeyFallback',
    byDefault: 'always',
    accepts: [
      [['--api-key-fallback=never'], 'never'],
      [['--api-key-fallback=always'], 'always'],
      [['--api-key-fallback', 'if-placeholder'], 'if-placeholder'],
    ],
    refuses: ['', 'Always', 'sometimes'],
  },
  {
    flag: 'cors-allowed-origins',
    key: 'corsAllowedOrigins',
    byDefault: [],
    accepts: [
      [['--cors-allowed-origins=*'], ['*']],
      [['--cors-allowed-origins='], []],
      [
        ['--cors-allowed-origins=https://A.example,http://localhost:3000'],
        ['https://a.example', 'http://localhost:3000'],
      ],
      [
        [
          '--cors-allowed-origins=https://a.example:443',
          '--cors-allowed-origins',
          'http://b:80, http://[::1]:3000,',
        ],
        ['https://a.example', 'http://b', 'http://[::1]:3000'],
      ],
      [
        ['--cors-allowed-origins=vscode-webview://abc_1,app://obsidian.md'],
        ['vscode-webview://abc_1', 'app://obsidian.md'],
      ],
    ],
    refuses: [
      'a.example',
      'https://a.example/',
      'https://a.example/x',
      'null',
      'https://*.example',
      'https://a b',
    ],
  },
  {
    flag: 'allowed-hosts',
    key: 'allowedHosts',
    byDefault: [],
    accepts: [
      [['--allowed-hosts='], []],
      [['--allowed-hosts=Proxy.Lab.example.'], ['proxy.lab.example']],
      [
        ['--allowed-hosts=a,b:8080, a ,', '--allowed-hosts', 'c.d:443'],
        ['a', 'b:8080', 'c.d:443'],
      ],
      [['--allowed-hosts=[::1]:8080,10.0.0.1'], ['[::1]:8080', '10.0.0.1']],
    ],
    refuses: [
      'https://a',
      'a/b',
      'a b',
      '*',
      '*.a',
      'a:x',
      'a:0',
      'a:65536',
      'user@a',
      ':80',
      'ａ.com',
      'a;b',
    ],
  },
  {
    flag: 'disable-prompt-cache',
    key: 'disablePromptCache',
    byDefault: true,
    accepts: [
      [['--disable-prompt-cache'], true],
      [['--disable-prompt-cache=false'], false],
    ],
    refuses: ['no', '', 'yes'],
  },
  {
    flag: 'dump-requests',
    key: 'dumpRequests',
    byDefault: false,
    accepts: [
      [['--dump-requests'], true],
      [['--dump-requests=0'], false],
    ],
    refuses: ['maybe'],
  },
  {
    flag: 'listen-address',
    key: 'listenAddress',
    byDefault: '0.0.0.0',
    accepts: [
      [['--listen-address=127.0.0.1'], '127.0.0.1'],
      [['--listen-address', 'LocalHost'], 'localhost'],
      [['--listen-address=::'], '::'],
      [['--listen-address=[::1]'], '::1'],
      [['--listen-address=unix:/run/proxy.sock'], 'unix:/run/proxy.sock'],
    ],
    refuses: [
      '',
      'localhost:80',
      'http://localhost',
      'a b',
      'unix:',
      'unix:s',
      'unix:/s/',
      `unix:/${'s'.repeat(103)}`,
    ],
  },
  {
    flag: 'log-format',
    key: 'logFormat',
    byDefault: 'text',
    accepts: [
      [['--log-format=json'], 'json'],
      [['--log-format=text'], 'text'],
    ],
    refuses: ['xml', ''],
  },
  {
    flag: 'log-level',
    key: 'logLevel',
    byDefault: 30,
    accepts: [
      [['--log-level=debug'], 20],
      [['--log-level', 'INFO'], 30],
      [['-l', 'warn'], 40],
      [['-lerror'], 50],
      [['--log-level=-4'], 20],
      [['-l', '-4'], 20],
      [['--log-level=-8'], 20],
      [['--log-level=0'], 30],
      [['--log-level=-2'], 30],
      [['--log-level=4'], 40],
      [['--log-level=8'], 50],
      [['--log-level=12'], 50],
    ],
    refuses: ['verbose', 'warning', '', '1.5', 'NaN'],
  },
  {
    flag: 'manifest-path',
    key: 'manifestPath',
    byDefault: undefined,
    accepts: [[['--manifest-path=m.json'], 'm.json']],
    refuses: ['', 'missing.json'],
  },
  {
    flag: 'gpu-ocsp-allow-unknown',
    key: 'gpuOcspAllowUnknown',
    byDefault: true,
    accepts: [
      [['--gpu-ocsp-allow-unknown'], true],
      [['--gpu-ocsp-allow-unknown=false', '--gpu-ocsp-revoked-grace-period=0'], false],
    ],
    refuses: ['2'],
  },
  {
    flag: 'gpu-ocsp-revoked-grace-period',
    key: 'gpuOcspRevokedGracePeriodHours',
    byDefault: 48,
    accepts: [
      [['--gpu-ocsp-revoked-grace-period=0'], 0],
      [['--gpu-ocsp-revoked-grace-period', '72'], 72],
    ],
    refuses: ['-1', '48h', '1.5', '08', '0x10', ''],
  },
  {
    flag: 'port',
    key: 'port',
    byDefault: 8080,
    accepts: [
      [['--port=9000'], 9000],
      [['--port', '0'], 0],
    ],
    refuses: ['65536', '-1', 'http', '', '80 ', '0080'],
  },
  {
    flag: 'prompt-cache-salt',
    key: 'promptCacheSalt',
    byDefault: undefined,
    accepts: [
      [['--disable-prompt-cache=false', `--prompt-cache-salt=${SALT}`], SALT],
      [['--disable-prompt-cache=false', '--prompt-cache-salt', 'random'], undefined],
    ],
  },
  {
    flag: 'tls-cert-path',
    key: 'tlsCertPath',
    byDefault: undefined,
    accepts: [[['--tls-cert-path=c.pem', '--tls-key-path=k.pem'], 'c.pem']],
    refuses: [''],
  },
  {
    flag: 'tls-key-path',
    key: 'tlsKeyPath',
    byDefault: undefined,
    accepts: [[['--tls-cert-path=c.pem', '--tls-key-path=k.pem'], 'k.pem']],
    refuses: [''],
  },
  {
    flag: 'workspace',
    key: 'workspace',
    byDefault: '.',
    accepts: [[['--workspace=/var/lib/x'], '/var/lib/x']],
    refuses: ['', 'a\0b'],
  },
  {
    flag: 'max-in-flight',
    key: 'maxInFlight',
    byDefault: undefined,
    accepts: [[['--max-in-flight=1'], 1]],
    refuses: ['0', '-1', '1.5', 'many'],
  },
  {
    flag: 'max-body-bytes',
    key: 'maxBodyBytes',
    byDefault: 128 * 1024 * 1024,
    accepts: [[['--max-body-bytes=1'], 1]],
    refuses: ['0', '-1', '1MB', '1e6'],
  },
  {
    flag: 'max-buffered-bytes',
    key: 'maxBufferedBytes',
    byDefault: Math.floor(Math.min(totalmem(), process.constrainedMemory() || totalmem()) / 4),
    accepts: [[['--max-buffered-bytes=1'], 1]],
    refuses: ['0', '-1', '1GB'],
  },
  {
    flag: 'first-byte-timeout',
    key: 'firstByteTimeout',
    byDefault: 600_000,
    accepts: [
      [['--first-byte-timeout=1h30m'], 5_400_000],
      [['--first-byte-timeout=1.5s'], 1_500],
      [['--first-byte-timeout=250ms'], 250],
      [['--first-byte-timeout=1500µs'], 2],
    ],
    refuses: ['0', '0s', '10', '-1s', '1d', 's', '', '1s ', '600h', '1us'],
  },
  {
    flag: 'stream-idle-timeout',
    key: 'streamIdleTimeout',
    byDefault: 300_000,
    accepts: [[['--stream-idle-timeout=2m'], 120_000]],
    refuses: ['0'],
  },
  {
    flag: 'stream-keepalive',
    key: 'streamKeepalive',
    byDefault: 0,
    accepts: [
      [['--stream-keepalive=15s'], 15_000],
      [['--stream-keepalive=0'], 0],
    ],
    refuses: ['15', '-1s', '600h', ''],
  },
  {
    flag: 'shutdown-grace',
    key: 'shutdownGrace',
    byDefault: 30_000,
    accepts: [
      [['--shutdown-grace=0'], 0],
      [['--shutdown-grace=1m'], 60_000],
    ],
    refuses: ['soon'],
  },
  {
    flag: 'shutdown-delay',
    key: 'shutdownDelay',
    byDefault: 0,
    accepts: [[['--shutdown-delay=5s'], 5_000]],
    refuses: ['5', 'soon'],
  },
  {
    flag: 'reuse-port',
    key: 'reusePort',
    byDefault: false,
    accepts: [[['--reuse-port', '--api-key=k'], true]],
    refuses: ['maybe'],
  },
  {
    flag: 'clients',
    key: 'clients',
    byDefault: undefined,
    accepts: [[['--clients', '/etc/clients.json'], '/etc/clients.json']],
    refuses: [''],
  },
  {
    flag: 'limits-store',
    key: 'limitsStore',
    byDefault: undefined,
    accepts: [
      [['--clients=c', '--limits-store=redis://store'], 'redis://store'],
      [
        ['--clients=c', '--limits-store', 'rediss://me:pass%40word@[::1]:7000/15'],
        'rediss://me:pass%40word@[::1]:7000/15',
      ],
      [['--clients=c', '--limits-store=@store.url'], 'redis://:in-a-file@store:6380'],
    ],
    refuses: ['', 'store:6379', '@missing'],
  },
  {
    flag: 'limits-store-failure',
    key: 'limitsStoreFailure',
    byDefault: 'closed',
    accepts: [
      [['--clients=c', '--limits-store=redis://store', '--limits-store-failure=open'], 'open'],
      [['--clients=c', '--limits-store=redis://store', '--limits-store-failure=closed'], 'closed'],
    ],
    refuses: ['', 'ajar'],
  },
  {
    flag: 'receipts',
    key: 'receipts',
    byDefault: false,
    accepts: [[['--receipts'], true]],
    refuses: ['maybe'],
  },
  {
    flag: 'protocol-version',
    key: 'protocolVersion',
    byDefault: 'v1.40.0',
    accepts: [
      [['--protocol-version=v1.46.0'], 'v1.46.0'],
      [['--protocol-version', 'v2.0.10'], 'v2.0.10'],
    ],
    refuses: [
      '',
      '1.40',
      'v1',
      'v1.40',
      '1.40.0',
      'v1.40.0.0',
      'v01.40.0',
      'v1.40.0\r\nx: y',
      'v1.40.0\n',
      'V1.40.0',
      'v1.40.0-rc1',
      'vv',
      'v99999.0.0',
    ],
  },
  {
    flag: 'responses-api',
    key: 'responsesApi',
    byDefault: false,
    accepts: [[['--responses-api'], true]],
    refuses: ['maybe'],
  },
  {
    flag: 'model-alias',
    key: 'modelAlias',
    byDefault: new Map(),
    accepts: [
      [['--model-alias=claude-*=big, gpt-4o=big', '--model-alias=*=a/b:c'], TABLE],
      [['--model-alias=a=b,a=b'], new Map([['a', 'b']])],
      [['--model-alias=big*=big'], new Map([['big*', 'big']])],
    ],
    refuses: [
      ...['a', 'a=', '=b', ' = ', 'a=b=c', 'a*b=c', 'a=b*', `${'a'.repeat(257)}=b`],
      ...['a=b,a=c', 'a=b,b=a', 'a=b,b=c'],
    ],
  },
  {
    flag: 'admin-address',
    key: 'adminAddress',
    byDefault: undefined,
    accepts: [[['--admin-address=127.0.0.1:9090'], { host: '127.0.0.1', port: 9090 }]],
    refuses: ['9090', ':9090', 'localhost', ''],
  },
  {
    flag: 'metrics-address',
    key: 'metricsAddress',
    byDefault: undefined,
    accepts: [
      [['--metrics-address=0.0.0.0:9090'], { host: '0.0.0.0', port: 9090 }],
      [['--admin-address=127.0.0.1:9090', '--metrics-address=[::1]:9090'], { host: '::1', port: 9090 }],
    ],
    refuses: ['9090', ':9090', 'localhost', ''],
  },
  {
    flag: 'unsafe-trust-roots',
    key: 'unsafeTrustRoots',
    byDefault: undefined,
    accepts: [[['--unsafe-trust-roots=roots', '--api-endpoint=localhost:9443'], 'roots']],
    refuses: [''],
  },
  {
    flag: 'cdn-base-url',
    key: 'cdnBaseUrl',
    byDefault: 'https://cdn.confidential.cloud',
    accepts: [
      [['--cdn-base-url=https://localhost:9443/'], 'https://localhost:9443'],
      [['--cdn-base-url=http://127.0.0.1:9443'], 'http://127.0.0.1:9443'],
    ],
    refuses: ['http://cdn.example', 'ftp://a', 'cdn.example', 'https://a/?x', 'https://user@a', ''],
  },
  {
    flag: 'amd-kds-url',
    key: 'amdKdsUrl',
    byDefault: 'https://kdsintf.amd.com',
    accepts: [[['--amd-kds-url=https://localhost:1/amd'], 'https://localhost:1/amd']],
    refuses: ['http://kds.example'],
  },
  {
    flag: 'intel-pcs-url',
    key: 'intelPcsUrl',
    byDefault: 'https://api.trustedservices.intel.com',
    accepts: [[['--intel-pcs-url=https://localhost:1/'], 'https://localhost:1']],
    refuses: ['http://pcs.example'],
  },
];

const LIB = join(import.meta.dirname, '../../lib');
/** A pattern that takes members out of a configuration, its members destructured in turn. */
/** The gateway has a part of the configuration as its settings. */
const TAKEN =
  /\{((?:[^{}]|\{[^{}]*\})*)\}(?: = (?:\w+\.)?(?:config|settings)\b|: (?:Pick<)?(?:Config|Settings|GatewayOptions)\b)/g;

/**
 * The members of Config that code outside the table, its rules and its parser reads: `config.x`, or
 * destructured.
 */
function readMembers(): ReadonlySet<string | undefined> {
  const files = globSync('**/*.ts', { cwd: LIB }).filter(
    (f) => !/^config.(?:config|flags|rules)\.ts$/.test(f),
  );
  const sources = files.map((file) => readFileSync(join(LIB, file), 'utf8'));
  const named = sources.flatMap((source) =>
    [...source.matchAll(/\b(?:config|settings)\.(\w+)/g)].map(([, name]) => name),
  );
  const taken = sources.flatMap((source) =>
    [...source.matchAll(TAKEN)].flatMap(([, list]) => list?.split(',')),
  );
  return new Set([...named, ...taken.map((member) => member?.split(':')[0]?.trim())]);
}

describe('the table of flags', () => {
  for (const { flag, key, byDefault, accepts, refuses } of ROWS) {
    it(`--${flag} has its default`, () => assert.deepEqual(configOf()[key], byDefault));
    for (const [argv, value] of accepts) {
      it(`${argv.join(' ')} sets ${key}`, () => assert.deepEqual(parsed(argv, FILES).config[key], value));
    }
    for (const text of refuses ?? []) {
      it(`--${flag}=${JSON.stringify(text)} is refused, and the error names the setting`, () => {
        refused(
          () => parsed([`--${flag}=${text}`], FILES),
          [flag === 'manifest-path' ? 'manifest' : flag.replace('api-key', 'key')],
        );
      });
    }
  }

  it('each flag has a row in this test', () => {
    const untested = FLAGS.filter(
      ({ name, retired }) => retired === undefined && !['help', 'version', 'licenses'].includes(name),
    )
      .map(({ name }) => name)
      .filter((name) => !ROWS.some((row) => row.flag === name));
    assert.deepEqual(untested, []);
  });

  it('the setting of each flag is read by code other than the parser of flags', () => {
    const read = readMembers();
    const unread = [...ROWS.map(({ key }) => key), 'planted'].filter((key) => !read.has(key));
    assert.deepEqual(unread, ['planted']);
  });

  it('no two spellings are the same, and none begins with "no-"', () => {
    const names = FLAGS.flatMap((flag) => [flag.name, ...(flag.aliases ?? []).map(({ name }) => name)]);
    assert.equal(new Set(names).size, names.length);
    assert.ok(!names.some((name) => name.startsWith('no-')));
  });

  it('flags for simulators are not listed', () => {
    const listed = LISTED.map(({ name }) => name);
    for (const name of ['unsafe-trust-roots', 'amd-kds-url', 'intel-pcs-url', 'ssEndpoint']) {
      assert.ok(!listed.includes(name), name);
    }
  });

  it('the configuration is frozen', () => {
    const config = configOf();
    for (const part of [config, config.apiEndpoint, config.corsAllowedOrigins, config.allowedHosts])
      assert.ok(Object.isFrozen(part));
  });
});
