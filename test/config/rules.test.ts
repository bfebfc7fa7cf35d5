import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CAUTIONS, CONTRADICTIONS } from '../../lib/config/rules.ts';
import { parsed, refused } from '../support/doors/config.ts';

const QUIET = ['--listen-address=127.0.0.1', '--api-key-fallback=always'];

describe('flags that contradict each other:', () => {
  const contradictions: [name: string, argv: string[]][] = [
    ['a certificate without its key', ['--tls-cert-path=c']],
    ['a key without its certificate', ['--tls-key-path=k']],
    ['a CA of clients without TLS', ['--tls-client-ca=a', '--clients=c']],
    ['a CA of clients without clients', ['--tls-client-ca=a', '--tls-cert-path=c', '--tls-key-path=k']],
    ['TLS on a socket file', ['--listen-address=unix:/s', '--tls-cert-path=c', '--tls-key-path=k']],
    ['a salt while the cache is off', ['--prompt-cache-salt=@f']],
    ['the same in its older name', ['--promptCacheSalt', 'x'.repeat(32)]],
    [
      'a salt while the cache is expressly off',
      ['--disable-prompt-cache=true', `--prompt-cache-salt=${'x'.repeat(32)}`],
    ],
    ['GPU certificates: unknown refused, revoked accepted', ['--gpu-ocsp-allow-unknown=false']],
    ['a store for limits that nobody has', ['--limits-store=redis://store']],
    ['one port for both listeners', ['--admin-address=127.0.0.1:8080']],
    [
      'the same on one address',
      ['--port=9090', '--admin-address=127.0.0.1:9090', '--listen-address=127.0.0.1'],
    ],
    [
      'the same on all addresses of the admin listener',
      ['--admin-address=[::]:8080', '--listen-address=127.0.0.1'],
    ],
    ['one port for the metrics and the applications', ['--metrics-address=0.0.0.0:8080']],
    [
      'one port for the metrics and the status page',
      ['--admin-address=127.0.0.1:9090', '--metrics-address=[::]:9090'],
    ],
    ['the same in older words', ['--nvidiaOCSPAllowUnknown=false', '--nvidiaOCSPRevokedGracePeriod=1']],
  ];
  for (const [name, argv] of contradictions) {
    it(`${name}: an error that names both`, () => {
      const message = refused(() => parsed(argv), []);
      const rule = CONTRADICTIONS.find((rule) => rule.message === message);
      assert.ok(rule, message);
      for (const flag of rule.flags) assert.ok(message.includes(`--${flag}`), `${message} lacks --${flag}`);
    });
  }

  it('each rule says the word the reference used, where it had one', () => {
    refused(() => parsed(['--tls-key-path=k']), ['TLS certificate and key must be provided together']);
    refused(
      () => parsed(['--gpu-ocsp-allow-unknown=false']),
      ['unknown OCSP statuses are disallowed', 'but revoked statuses are allowed'],
    );
  });

  it('"good only" takes both GPU flags', () => {
    const { config } = parsed(['--gpu-ocsp-allow-unknown=false', '--gpu-ocsp-revoked-grace-period=0']);
    assert.deepEqual([config.gpuOcspAllowUnknown, config.gpuOcspRevokedGracePeriodHours], [false, 0]);
  });
});

describe('warnings about the configuration:', () => {
  const cautions: [name: string, argv: string[], words: string | RegExp][] = [
    ['a fallback without a key', ['--api-key-fallback=never'], 'has no effect without --api-key'],
    ['no key', [], /^No API key provided\. .* Give one with --api-key or PRIVATEMODE_API_KEY/],
    ['a port beside a socket file', ['--listen-address=unix:/s', '--port=1'], '--port has no effect'],
    ['permissions of no socket file', ['--listen-mode=0660'], '--listen-mode has no effect'],
    [
      'a key without --api-key-fallback',
      ['--api-key=k'],
      /--api-key-fallback is not set.*never.*"placeholder".*always, or to if-placeholder/,
    ],
    ['a key for every page', ['--api-key=k', '--cors-allowed-origins=*'], /every web page/],
    [
      'a fallback with clients',
      ['--clients=c', '--api-key=k', '--api-key-fallback=always'],
      /no effect with --clients/,
    ],
    [
      'what to do without a store that there is not',
      ['--clients=c', '--limits-store-failure=open'],
      /--limits-store-failure has no effect without --limits-store/,
    ],
    [
      'another announced version',
      ['--protocol-version=v1.46.0'],
      /--protocol-version is an experiment: .* nothing leaves unsealed/,
    ],
    ['dumps', ['--dump-requests'], /--dump-requests writes every prompt/],
    ['a random salt without a cache', ['--prompt-cache-salt=random'], /no effect/],
    [
      'foreign roots',
      ['--unsafe-trust-roots=r', '--api-endpoint=localhost:1'],
      /^UNSAFE: --unsafe-trust-roots/,
    ],
  ];
  for (const [name, argv, words] of cautions) {
    it(`${name} is warned of`, () => {
      const { warnings } = parsed(argv);
      assert.ok(
        warnings.some((warning) => new RegExp(words).test(warning)),
        JSON.stringify(warnings),
      );
    });
  }

  it('every rule has a case here', () => {
    const seen = new Set(cautions.flatMap(([, argv]) => parsed(argv).warnings));
    assert.deepEqual(
      CAUTIONS.filter(({ message }) => !seen.has(message)),
      [],
    );
  });

  const quiet: [name: string, argv: string[]][] = [
    ['a key on loopback, with the fallback said', ['--api-key=k', ...QUIET]],
    ['on IPv6 loopback', ['--api-key=k', '--api-key-fallback=always', '--listen-address=::1']],
    ['on localhost', ['--api-key=k', '--api-key-fallback=always', '--listen-address=localhost']],
    [
      'beyond it with TLS',
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
    ['one port, which is any', ['--port=0', '--admin-address=127.0.0.1:0', '--api-key=k', ...QUIET]],
    ['beyond it where clients bring their keys', ['--api-key=k', '--api-key-fallback=never']],
  ];
  for (const [name, argv] of quiet)
    it(`${name} is nothing to warn of`, () => assert.deepEqual(parsed(argv).warnings, []));
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
  it('is let be with the harmless value', () => {
    assert.ok(parsed([], {}, { NODE_TLS_REJECT_UNAUTHORIZED: '1' }));
  });
});
