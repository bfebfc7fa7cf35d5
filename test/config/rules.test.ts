import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CAUTIONS, tellReach } from '../../lib/config/rules.ts';
import { parsed, refused } from '../support/doors/config.ts';

const [SALT, OCSP] = [
  'prompt-cache-salt disable-prompt-cache',
  'gpu-ocsp-allow-unknown gpu-ocsp-revoked-grace-period',
];
const PORTS = 'port admin-address metrics-address';
const QUIET = ['--listen-address=127.0.0.1', '--api-key-fallback=always'];

describe('flags that contradict each other', () => {
  const contradictions: [name: string, argv: string[], flags: string][] = [
    ['a certificate without its key', ['--tls-cert-path=c'], 'tls-cert-path tls-key-path'],
    ['a key without its certificate', ['--tls-key-path=k'], 'tls-cert-path tls-key-path'],
    [
      'TLS on a socket file',
      ['--listen-address=unix:/s', '--tls-cert-path=c', '--tls-key-path=k'],
      'listen-address tls-cert-path',
    ],
    ['a salt while the cache is off', ['--prompt-cache-salt=@f'], SALT],
    ['a salt in its older spelling while the cache is off', ['--promptCacheSalt', 'x'.repeat(32)], SALT],
    [
      'a salt while the cache is expressly off',
      ['--disable-prompt-cache=true', `--prompt-cache-salt=${'x'.repeat(32)}`],
      SALT,
    ],
    ['GPU certificates: unknown refused, revoked accepted', ['--gpu-ocsp-allow-unknown=false'], OCSP],
    [
      'GPU certificates in older spellings: unknown refused, revoked accepted',
      ['--nvidiaOCSPAllowUnknown=false', '--nvidiaOCSPRevokedGracePeriod=1'],
      OCSP,
    ],
    ['a store for limits that nobody has', ['--limits-store=redis://store'], 'limits-store clients'],
    [
      'what to do without a store that there is not',
      ['--clients=c', '--limits-store-failure=open'],
      'limits-store-failure limits-store',
    ],
    ['a shared port without a key, with which it would never open', ['--reuse-port'], 'reuse-port api-key'],
    [
      'a shared port that is a file',
      ['--reuse-port', '--api-key=k', '--listen-address=unix:/s'],
      'reuse-port listen-address',
    ],
    [
      'a shared port that is another one each time',
      ['--reuse-port', '--api-key=k', '--port=0'],
      'reuse-port port',
    ],
    [
      'a shared port and a shared cache whose salt is another one in each instance',
      ['--reuse-port', '--api-key=k', '--disable-prompt-cache=false'],
      'reuse-port prompt-cache-salt',
    ],
    ['one port for both listeners', ['--admin-address=127.0.0.1:8080'], PORTS],
    [
      'one port for both listeners on one address',
      ['--port=9090', '--admin-address=127.0.0.1:9090', '--listen-address=127.0.0.1'],
      PORTS,
    ],
    [
      'one port for both listeners, with the admin listener on all addresses',
      ['--admin-address=[::]:8080', '--listen-address=127.0.0.1'],
      PORTS,
    ],
    ['one port for the metrics and the applications', ['--metrics-address=0.0.0.0:8080'], PORTS],
    [
      'one port for the metrics and the status page',
      ['--admin-address=127.0.0.1:9090', '--metrics-address=[::]:9090'],
      PORTS,
    ],
  ];
  for (const [name, argv, flags] of contradictions)
    it(`are refused by an error that names both: ${name}`, () => {
      const named = flags.split(' ').map((flag) => `--${flag}`);
      refused(() => parsed(argv), named);
    });

  it('include a shared port on a socket of systemd, which no other instance could open', () => {
    const inherited = { LISTEN_FDS: '1', LISTEN_PID: String(process.pid) };
    refused(
      () => parsed(['--reuse-port', '--api-key=k'], {}, inherited),
      ['--reuse-port', 'systemd', 'socket unit'],
    );
  });

  it('include a shared port on a system other than Linux', (t) => {
    const { platform } = process;
    t.after(() => Object.defineProperty(process, 'platform', { value: platform }));
    Object.defineProperty(process, 'platform', { value: 'darwin' });
    refused(() => parsed(['--reuse-port', '--api-key=k']), ['--reuse-port needs Linux']);
  });

  it('do not include a shared port with a key, and with one salt in all instances', () => {
    const salt = `--prompt-cache-salt=${'s'.repeat(32)}`;
    const { config } = parsed(['--reuse-port', '--api-key=k', '--disable-prompt-cache=false', salt]);
    assert.equal(config.reusePort, true);
  });

  it('are refused with the error of the reference implementation if that has the same rule', () => {
    refused(() => parsed(['--tls-key-path=k']), ['TLS certificate and key must be provided together']);
    refused(
      () => parsed(['--gpu-ocsp-allow-unknown=false']),
      ['unknown OCSP statuses are disallowed', 'but revoked statuses are allowed'],
    );
  });

  it('do not include --gpu-ocsp-allow-unknown=false with --gpu-ocsp-revoked-grace-period=0', () => {
    const { config } = parsed(['--gpu-ocsp-allow-unknown=false', '--gpu-ocsp-revoked-grace-period=0']);
    assert.deepEqual([config.gpuOcspAllowUnknown, config.gpuOcspRevokedGracePeriodHours], [false, 0]);
  });
});

describe('warnings about the configuration', () => {
  const ACTIVATED = { LISTEN_FDS: '1', LISTEN_PID: String(process.pid) };
  const OPENED = /^--listen-address and --port have no effect on the socket that systemd has opened/;
  const cautions: [name: string, argv: string[], words: string | RegExp, env?: Record<string, string>][] = [
    ['a port on a socket of systemd', ['--port=8080'], OPENED, ACTIVATED],
    ['an open address on a socket of systemd', ['--listen-address=0.0.0.0'], OPENED, ACTIVATED],
    ['--api-key-fallback without a key', ['--api-key-fallback=never'], /no effect without --api-key/],
    ['no API key', [], /^No API key provided\. .* Give one with --api-key or PRIVATEMODE_API_KEY/],
    ['a key that every web page can use', ['--api-key=k', '--cors-allowed-origins=*'], /every web page/],
    [
      '--api-key-fallback with clients',
      ['--clients=c', '--api-key=k', '--api-key-fallback=always'],
      /no effect .* with --clients/,
    ],
    [
      'limits that each instance on a shared port counts for itself',
      ['--reuse-port', '--api-key=k', '--clients=c'],
      /each instance counts the limits of --clients for itself.* --limits-store/,
    ],
    [
      'another --protocol-version',
      ['--protocol-version=v1.46.0'],
      /--protocol-version is an experiment: .* nothing leaves unsealed/,
    ],
    [
      'a ~ in --workspace that no shell has replaced',
      ['--workspace=~/proxy'],
      /--workspace begins with ~ and makes a directory of that name: .* write \$HOME/,
    ],
    ['--dump-requests', ['--dump-requests'], /--dump-requests writes every prompt/],
    [
      '--unsafe-trust-roots',
      ['--unsafe-trust-roots=r', '--api-endpoint=localhost:1'],
      /^UNSAFE: --unsafe-trust-roots/,
    ],
  ];
  for (const [name, argv, words, env] of cautions) {
    it(`tell of ${name}`, () => {
      const { warnings } = parsed(argv, {}, env);
      assert.ok(
        warnings.some((warning) => new RegExp(words).test(warning)),
        JSON.stringify(warnings),
      );
    });
  }

  it('have a case in this test for every rule', () => {
    const seen = new Set(cautions.flatMap(([, argv, , env]) => parsed(argv, {}, env).warnings));
    assert.deepEqual(
      CAUTIONS.filter(([, message]) => !seen.has(message)),
      [],
    );
  });

  const quiet: [name: string, argv: string[]][] = [
    ['a key alone', ['--api-key=k']],
    ['a key on loopback, with --api-key-fallback', ['--api-key=k', ...QUIET]],
    [
      'a key beyond loopback with TLS',
      ['--api-key=k', '--api-key-fallback=always', '--tls-cert-path=c', '--tls-key-path=k'],
    ],
    ['clients on loopback, with a key', ['--clients=c', '--api-key=k', '--listen-address=127.0.0.1']],
    ['clients on loopback, with keys of their own', ['--clients=c', '--listen-address=127.0.0.1']],
    [
      'a random salt with a cache',
      ['--clients=c', ...QUIET.slice(0, 1), '--prompt-cache-salt=random', '--disable-prompt-cache=false'],
    ],
    [
      'one port on two addresses',
      ['--admin-address=127.0.0.1:8080', '--listen-address=::1', '--api-key=k', '--api-key-fallback=always'],
    ],
    ['port 0 for both listeners', ['--port=0', '--admin-address=127.0.0.1:0', '--api-key=k', ...QUIET]],
    ['a key beyond loopback if clients bring their keys', ['--api-key=k', '--api-key-fallback=never']],
  ];
  for (const [name, argv] of quiet)
    it(`do not tell of ${name}`, () => assert.deepEqual(parsed(argv).warnings, []));
});

/** What the log says of who can use the proxy. */
function told(argv: readonly string[], env: Readonly<Record<string, string>> = {}, inherited?: string) {
  const lines: string[] = [];
  const log = {
    info: (line: string) => lines.push(`info ${line}`),
    warn: (line: string) => lines.push(line),
  };
  tellReach(parsed(argv, { k: 'sk-CANARY' }).config, env, log, inherited);
  return lines;
}

describe('a listener that other machines can reach', () => {
  const KEY = '--api-key=@k';
  const OWN = '--api-key-fallback=if-placeholder';
  const spent = (where: string, change = '--listen-address'): string =>
    `Other machines reach ${where} without TLS, and can spend the key: ${change} 127.0.0.1 keeps them out (docs/listening.md)`;
  const admin = 'Other machines reach --admin-address 0.0.0.0, which asks for no key';
  const READ =
    'Other machines reach 0.0.0.0 without TLS, and read the tokens of --clients on the way: --listen-address 127.0.0.1 keeps them out (docs/listening.md)';
  for (const [name, argv, lines] of [
    ['with a key on every interface', [KEY, OWN], [spent('0.0.0.0')]],
    ['with a key on a host name', [KEY, OWN, '--listen-address=gpu-box'], [spent('gpu-box')]],
    ['with clients', ['--clients=c', KEY], [READ]],
    ['that of the admin', ['--listen-address=::1', '--admin-address=0.0.0.0:9090'], [admin]],
  ] as const)
    it(`is told ${name}`, () => assert.deepEqual(told(argv), lines));

  it('is told at level info in a container, and for a socket of systemd by its own address', () => {
    const all = [KEY, OWN, '--admin-address=0.0.0.0:9090'];
    for (const env of [{ container: 'oci' }, { KUBERNETES_SERVICE_HOST: '10.0.0.1' }])
      assert.deepEqual(told(all, env), [`info ${spent('0.0.0.0')}`, `info ${admin}`]);
    assert.deepEqual(told([KEY, OWN, '--listen-address=::1'], {}, '::'), [spent('::', 'ListenStream=')]);
    assert.deepEqual(told([KEY, OWN], {}, '127.0.0.1'), []);
  });

  it('is told in one line of level info where the configured key replaces all others', () => {
    const [line, ...more] = told([KEY, '--listen-address=::1']);
    assert.match(line as string, /^info Each request is sent with the configured key.*docs\/keys\.md/);
    assert.deepEqual(more, []);
  });

  for (const [name, argv] of [
    ['loopback', [KEY, OWN, '--listen-address=127.0.0.1', '--admin-address=[::1]:9090']],
    ['IPv6 loopback', [KEY, OWN, '--listen-address=::1']],
    ['localhost', ['--clients=c', '--listen-address=localhost', '--admin-address=localhost:9090']],
    ['a socket file', [KEY, OWN, '--listen-address=unix:/run/s']],
    ['TLS', [KEY, OWN, '--tls-cert-path=c', '--tls-key-path=k']],
    ['clients that bring their keys', [KEY, '--api-key-fallback=never']],
    ['no key at all', []],
  ] as const)
    it(`is not told with ${name}`, () => assert.deepEqual(told(argv), []));
});

describe('NODE_TLS_REJECT_UNAUTHORIZED of the environment', () => {
  it('cannot switch off certificate checks', () =>
    void refused(
      () => parsed([], {}, { NODE_TLS_REJECT_UNAUTHORIZED: '0' }),
      ['NODE_TLS_REJECT_UNAUTHORIZED', 'SSL_CERT_FILE'],
    ));
  it('is accepted with the value 1', () => {
    assert.ok(parsed([], {}, { NODE_TLS_REJECT_UNAUTHORIZED: '1' }));
  });
});
