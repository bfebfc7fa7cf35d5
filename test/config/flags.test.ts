import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { describe, it } from 'node:test';
import type { Config } from '../../lib/config/config.ts';
import { FLAGS } from '../../lib/config/flags.ts';
import { configOf, parsed, refused } from '../support/doors/config.ts';

const SALT = 'a-salt-of-exactly-thirty-two-by.';
const FILES = { 'key.txt': 'sk-file\n' };

/** `accepts`: the text of the flag, the value that it stands for, and other flags that it needs. */
interface Row {
  readonly flag: string;
  readonly byDefault: unknown;
  readonly accepts: readonly (readonly [
    text: string,
    value: unknown,
    more?: readonly string[] | undefined,
  ])[];
  readonly refuses: readonly string[];
}

/** `refuses`: texts with | between them; undefined: none. */
const row = (flag: string, byDefault: unknown, accepts: Row['accepts'], refuses?: string): Row => ({
  ...{ flag, byDefault, accepts, refuses: refuses?.split('|') ?? [] },
});
const switches = (flag: string, byDefault: boolean, more?: readonly string[]): Row =>
  row(
    flag,
    byDefault,
    [
      ['', true, more],
      ['=0', false],
    ],
    'maybe|2|',
  );

/** Texts that mean themselves. */
function same(...texts: readonly string[]): Row['accepts'] {
  return texts.map((text) => [text, text] as const);
}

/** Texts that mean the number that they are. */
const numbers = (...texts: readonly string[]): Row['accepts'] =>
  texts.map((text) => [text, Number(text)] as const);

const PAIR = ['--tls-cert-path=p', '--tls-key-path=p'];
const OF_CLIENTS = ['--clients=c', '--limits-store=redis://s'];
const SHARED = ['--disable-prompt-cache=false'];
const NO_ADDRESS = '9090|:9090|localhost|';

/** The specification's flag table and our own flags, row by row. */
const ROWS: readonly Row[] = [
  row(
    'api-endpoint',
    { host: 'api.privatemode.ai', port: 443 },
    [
      ['localhost:9443', { host: 'localhost', port: 9443 }],
      ['API.Example.COM.', { host: 'api.example.com', port: 443 }],
      ['[::1]:9443', { host: '::1', port: 9443 }],
      ['[2001:DB8::1]', { host: '2001:db8::1', port: 443 }],
      ['::1', { host: '::1', port: 443 }],
      ['10.0.0.1:1', { host: '10.0.0.1', port: 1 }],
    ],
    'https://api.example.com|a:b|a:|a:1:2|a/b|a..b||:443|[zz]:1|a:65536|ａ.com',
  ),
  row(
    'api-key',
    undefined,
    [
      ['sk-1', { key: 'sk-1', path: undefined, setting: '--api-key' }],
      ['@key.txt', { key: 'sk-file', path: 'key.txt', setting: '--api-key' }],
      ['-a-dash', { key: '-a-dash', path: undefined, setting: '--api-key' }],
      ['abc@def ghi', { key: 'abc@def ghi', path: undefined, setting: '--api-key' }],
    ],
    '| |two\nlines|schlüssel| sk|@missing.txt',
  ),
  row('api-key-fallback', 'always', same('never', 'always', 'if-placeholder'), '|Always|sometimes'),
  row(
    'cors-allowed-origins',
    [],
    [
      ['*', ['*']],
      ['', []],
      ['https://A.example,http://localhost:3000', ['https://a.example', 'http://localhost:3000']],
      [
        'https://a.example:443,http://b:80, http://[::1]:3000,',
        ['https://a.example', 'http://b', 'http://[::1]:3000'],
      ],
      ['http://a:443,https://b:80', ['http://a:443', 'https://b:80']],
      ['vscode-webview://abc_1,app://obsidian.md', ['vscode-webview://abc_1', 'app://obsidian.md']],
    ],
    'a.example|https://a.example/|https://a.example/x|null|https://*.example|https://a b',
  ),
  row(
    'allowed-hosts',
    [],
    [
      ['', []],
      ['Proxy.Lab.example.', ['proxy.lab.example']],
      ['a,b:8080, a ,c.d:443', ['a', 'b:8080', 'c.d:443']],
      ['[::1]:8080,10.0.0.1', ['[::1]:8080', '10.0.0.1']],
    ],
    'https://a|a/b|a b|*|*.a|a:x|a:0|a:65536|user@a|:80|ａ.com|a;b',
  ),
  switches('disable-prompt-cache', true),
  switches('dump-requests', false),
  row(
    'listen-address',
    '0.0.0.0',
    [['LocalHost', 'localhost'], ['[::1]', '::1'], ...same('127.0.0.1', '::', 'unix:/run/proxy.sock')],
    `|localhost:80|http://localhost|a b|unix:|unix:s|unix:/s/|unix:/${'s'.repeat(103)}`,
  ),
  row('log-format', 'text', same('json', 'text'), 'xml|'),
  row(
    'log-level',
    30,
    [
      ...[['debug', 20] as const, ['INFO', 30] as const, ['warn', 40] as const, ['Error', 50] as const],
      ...[['-4', 20] as const, ['-8', 20] as const, ['0', 30] as const, ['-2', 30] as const],
      ...[['4', 40] as const, ['8', 50] as const, ['12', 50] as const],
    ],
    'verbose|warning||1.5|NaN',
  ),
  row('manifest-path', undefined, same('m.json'), ''),
  row(
    'gpu-ocsp-allow-unknown',
    true,
    [
      ['', true],
      ['=false', false, ['--gpu-ocsp-revoked-grace-period=0']],
    ],
    '2',
  ),
  row('gpu-ocsp-revoked-grace-period', 48, numbers('0', '72'), '-1|48h|1.5|08|0x10|'),
  row('port', 8080, numbers('9000', '0', '65535'), '65536|-1|http||80 |0080'),
  row('prompt-cache-salt', undefined, [
    [SALT, SALT, SHARED],
    ['random', undefined, SHARED],
  ]),
  row('tls-cert-path', undefined, [['p', 'p', PAIR]], ''),
  row('tls-key-path', undefined, [['p', 'p', PAIR]], ''),
  row('workspace', '.', same('/var/lib/x'), '|a\0b|~/x'),
  row('max-in-flight', undefined, numbers('1'), '0|-1|1.5|many'),
  row('max-body-bytes', 128 * 1024 * 1024, numbers('1'), '0|-1|1MB|1e6'),
  row(
    'max-buffered-bytes',
    Math.floor(Math.min(totalmem(), process.constrainedMemory() || totalmem()) / 4),
    numbers('1'),
    '0|-1|1GB',
  ),
  row(
    'first-byte-timeout',
    600_000,
    [
      ['1h30m', 5_400_000],
      ['1.5s', 1_500],
      ['250ms', 250],
      ['1500µs', 2],
    ],
    '0|0s|10|-1s|1d|s||1s |600h|1us',
  ),
  row('stream-idle-timeout', 300_000, [['2m', 120_000]], '0'),
  row('stream-keepalive', 0, [['15s', 15_000]], '15|-1s|600h|'),
  row('shutdown-grace', 30_000, [['0', 0]], 'soon'),
  row('shutdown-delay', 0, [['5s', 5_000]], '5|soon'),
  switches('reuse-port', false, ['--api-key=k']),
  row('clients', undefined, same('/etc/clients.json'), ''),
  row('limits-store', undefined, [['redis://store', 'redis://store', OF_CLIENTS]], '|store:6379|@missing'),
  row('limits-store-failure', 'closed', [['open', 'open', OF_CLIENTS]], '|ajar'),
  switches('receipts', false),
  row(
    'protocol-version',
    'v1.40.0',
    same('v1.46.0', 'v2.0.10'),
    '|1.40|v1|v1.40|1.40.0|v1.40.0.0|v01.40.0|v1.40.0\r\nx: y|v1.40.0\n|V1.40.0|v1.40.0-rc1|vv|v99999.0.0',
  ),
  switches('responses-api', false),
  row(
    'model-alias',
    new Map(),
    [
      [
        'claude-*=big, gpt-4o=big,*=a/b:c',
        new Map([
          ['claude-*', 'big'],
          ['gpt-4o', 'big'],
          ['*', 'a/b:c'],
        ]),
      ],
      ['a=b,a=b', new Map([['a', 'b']])],
      ['big*=big', new Map([['big*', 'big']])],
    ],
    `a|a=|=b| = |a=b=c|a*b=c|a=b*|${'a'.repeat(257)}=b|a=b,a=c|a=b,b=a|a=b,b=c`,
  ),
  row('admin-address', undefined, [['127.0.0.1:9090', { host: '127.0.0.1', port: 9090 }]], NO_ADDRESS),
  row('metrics-address', undefined, [['[::1]:9090', { host: '::1', port: 9090 }]], NO_ADDRESS),
  row('unsafe-trust-roots', undefined, same('roots'), ''),
  row(
    'cdn-base-url',
    'https://cdn.confidential.cloud',
    [
      ['https://localhost:9443/', 'https://localhost:9443'],
      ['http://127.0.0.1:9443', 'http://127.0.0.1:9443'],
    ],
    'http://cdn.example|ftp://a|cdn.example|https://a/?x|https://user@a|',
  ),
  row('amd-kds-url', 'https://kdsintf.amd.com', same('https://localhost:1/amd'), 'http://kds.example'),
  row(
    'intel-pcs-url',
    'https://api.trustedservices.intel.com',
    same('https://localhost:1'),
    'http://pcs.example',
  ),
];

/** The member of the configuration. */
const keyOf = (flag: string): keyof Config =>
  flag.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase()) as keyof Config;

describe('the table of flags', () => {
  for (const { flag, byDefault, accepts, refuses } of ROWS) {
    const key = keyOf(flag);
    it(`--${flag} has its default`, () => assert.deepEqual(configOf()[key], byDefault));
    for (const [text, value, more = []] of accepts) {
      const argv = [
        ...more,
        `--${flag}${/^(?:=|$)/.test(text) && typeof value === 'boolean' ? text : `=${text}`}`,
      ];
      it(`${argv.join(' ')} sets ${key}`, () => assert.deepEqual(parsed(argv, FILES).config[key], value));
    }
    for (const text of refuses)
      it(`--${flag}=${JSON.stringify(text)} is refused, and the error names the setting`, () => {
        refused(() => parsed([`--${flag}=${text}`], FILES), [flag.replace('api-key', 'key')]);
      });
  }

  it('each flag has a row in this test', () => {
    const untested = FLAGS.filter(
      ({ name, retired }) => retired === undefined && !['help', 'version', 'licenses'].includes(name),
    )
      .map(({ name }) => name)
      .filter((name) => !ROWS.some((row) => row.flag === name));
    assert.deepEqual(untested, []);
  });

  it('the configuration is frozen', () => {
    const config = configOf();
    for (const part of [config, config.apiEndpoint, config.corsAllowedOrigins, config.allowedHosts])
      assert.ok(Object.isFrozen(part));
  });
});
