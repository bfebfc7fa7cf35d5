import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CAUTIONS, CONTRADICTIONS } from '../../lib/config/rules.ts';
import { parsed, refused } from '../support/doors/config.ts';

const QUIET = ['--listen-address=127.0.0.1', '--api-key-fallback=always'];

describe('flags that contradict each other', () => {
  const contradictions: [name: string, argv: string[]][] = [
    ['a certificate without its key', ['--tls-cert-path=c']],
    ['a key without its certificate', ['--tls-key-path=k']],
    ['TLS on a socket file', ['--listen-address=unix:/s', '--tls-cert-path=c', '--tls-key-path=k']],
    ['a salt while the cache is off', ['--prompt-cache-salt=@f']],
    ['a salt in its older spelling while the cache is off', ['--promptCacheSalt', 'x'.repeat(32)]],
    [
      'a salt while the cache is expressly off',
      ['--disable-prompt-cache=true', `--prompt-cache-salt=${'x'.repeat(32)}`],
    ],
    ['GPU certificates: unknown refused, revoked accepted', ['--gpu-ocsp-allow-unknown=false']],
    ['a store for limits that nobody has', ['--limits-store=redis://store']],
    ['a shared port without a key, with which it would never open', ['--reuse-port']],
    ['a shared port that is a file', ['--reuse-port', '--api-key=k', '--listen-address=unix:/s']],
    ['a shared port that is another one each time', ['--reuse-port', '--api-key=k', '--port=0']],
    [
      'a shared port and a shared cache whose salt is another one in each instance',
      ['--reuse-port', '--api-key=k', '--disable-prompt-cache=false'],
    ],
    ['one port for both listeners', ['--admin-address=127.0.0.1:8080']],
    [
      'one port for both listeners on one address',
      ['--port=9090', '--admin-address=127.0.0.1:9090', '--listen-address=127.0.0.1'],
    ],
    [
      'one port for both listeners, with the admin listener on all addresses',
      ['--admin-address=[::]:8080', '--listen-address=127.0.0.1'],
    ],
    ['one port for the metrics and the applications', ['--metrics-address=0.0.0.0:8080']],
    [
      'one port for the metrics and the status page',
      ['--admin-address=127.0.0.1:9090', '--metrics-address=[::]:9090'],
    ],
    [
      'GPU certificates in older spellings: unknown refused, revoked accepted',
      ['--nvidiaOCSPAllowUnknown=false', '--nvidiaOCSPRevokedGracePeriod=1'],
    ],
  ];
  for (const [name, argv] of contradictions) {
    it(`are refused by an error that names both: ${name}`, () => {
      const message = refused(() => parsed(argv), []);
      const rule = CONTRADICTIONS.find((rule) => rule.message === message);
      assert.ok(rule, message);
      for (const flag of rule.flags) assert.ok(message.includes(`--${flag}`), `${message} lacks --${flag}`);
    });
  }

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
    ['--api-key-fallback without a key', ['--api-key-fallback=never'], 'has no effect without --api-key'],
    ['no API key', [], /^No API key provided\. .* Give one with --api-key or PRIVATEMODE_API_KEY/],
    ['a port beside a socket file', ['--listen-address=unix:/s', '--port=1'], '--port has no effect'],
    [
      'a key without --api-key-fallback',
      ['--api-key=k'],
      /--api-key-fallback is not set.*never.*"placeholder".*always, or to if-placeholder/,
    ],
    ['a key that every web page can use', ['--api-key=k', '--cors-allowed-origins=*'], /every web page/],
    [
      '--api-key-fallback with clients',
      ['--clients=c', '--api-key=k', '--api-key-fallback=always'],
      /no effect with --clients/,
    ],
    [
      '--limits-store-failure without a store',
      ['--clients=c', '--limits-store-failure=open'],
      /--limits-store-failure has no effect without --limits-store/,
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
    ['a random salt without a cache', ['--prompt-cache-salt=random'], /no effect/],
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
      CAUTIONS.filter(({ message }) => !seen.has(message)),
      [],
    );
  });

  const quiet: [name: string, argv: string[]][] = [
    ['a key on loopback, with --api-key-fallback', ['--api-key=k', ...QUIET]],
    ['a key on IPv6 loopback', ['--api-key=k', '--api-key-fallback=always', '--listen-address=::1']],
    ['a key on localhost', ['--api-key=k', '--api-key-fallback=always', '--listen-address=localhost']],
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

describe('unsafe roots', () => {
  for (const host of [
    'api.privatemode.ai',
    'API.PrivateMode.AI.',
    'api.privatemode.ai:8443',
    'privatemode.ai',
    'x.y.privatemode.ai',
    'api.confidential.cloud',
  ]) {
    it(`are refused for ${host}`, () =>
      void refused(
        () => parsed(['--unsafe-trust-roots=r', `--api-endpoint=${host}`]),
        ['--unsafe-trust-roots', '--api-endpoint'],
        'unsafe_roots_refused',
      ));
  }
  it('are refused for the default endpoint', () =>
    void refused(() => parsed(['--unsafe-trust-roots=r']), [], 'unsafe_roots_refused'));
  for (const host of ['localhost:9443', 'notprivatemode.ai', 'privatemode.ai.example']) {
    it(`are taken for ${host}`, () =>
      assert.equal(
        parsed(['--unsafe-trust-roots=r', `--api-endpoint=${host}`]).config.unsafeTrustRoots,
        'r',
      ));
  }
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
