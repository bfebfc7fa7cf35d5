import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CAUTIONS, tellReach } from '../../lib/config/rules.ts';
import { parsed, refused } from '../support/doors/config.ts';

const SALT = `--prompt-cache-salt=${'s'.repeat(32)}`;

describe('flags that contradict each other', () => {
  const shared = '--reuse-port needs one TCP port that each instance opens itself';
  const off = '--prompt-cache-salt is set while the shared prompt cache is off';
  // The beginning is that of the reference.
  const ocsp =
    /^unknown OCSP statuses are disallowed \(--gpu-ocsp-allow-unknown=false\), but revoked statuses are allowed for a while: add --gpu-ocsp-revoked-grace-period=0 /;
  const PORT = '--reuse-port --api-key=k';
  for (const [name, line, words] of [
    ['a certificate without its key', '--tls-cert-path=c', '--tls-cert-path needs --tls-key-path'],
    ['a key without its certificate', '--tls-key-path=k', '--tls-key-path needs --tls-cert-path'],
    ['TLS on a socket file', '--listen-address=unix:/s --tls-cert-path=c --tls-key-path=k', 'needs no TLS'],
    ['a salt while the cache is off', SALT, off],
    ['unknown GPU certificates refused, revoked accepted', '--gpu-ocsp-allow-unknown=false', ocsp],
    ['a store for limits that nobody has', '--limits-store=redis://store', '--limits-store needs --clients'],
    ['no store', '--clients=c --limits-store-failure=open', '--limits-store-failure needs --limits-store'],
    ['a shared port without a key', '--reuse-port', '--reuse-port needs --api-key'],
    ['a shared port that is a file', `${PORT} --listen-address=unix:/s`, shared],
    ['a shared port that is another one each time', `${PORT} --port=0`, shared],
    ['a salt of each instance', `${PORT} --disable-prompt-cache=false`, 'the same --prompt-cache-salt'],
  ] as const)
    it(`are refused by an error that names both: ${name}`, () =>
      void refused(() => parsed(line.split(' ')), [words]));

  it('include a shared port on a socket of systemd, which no other instance could open', () => {
    const inherited = { LISTEN_FDS: '1', LISTEN_PID: String(process.pid) };
    refused(() => parsed(['--reuse-port', '--api-key=k'], {}, inherited), [shared, 'socket unit of systemd']);
  });

  it('include a shared port on a system other than Linux', (t) => {
    const { platform } = process;
    t.after(() => Object.defineProperty(process, 'platform', { value: platform }));
    Object.defineProperty(process, 'platform', { value: 'darwin' });
    refused(() => parsed(['--reuse-port', '--api-key=k']), ['--reuse-port needs Linux']);
  });

  it('do not include a shared port with a key, and with one salt in all instances', () =>
    assert.ok(parsed(['--reuse-port', '--api-key=k', '--disable-prompt-cache=false', SALT])));

  it('are named by their variables where these set them', () => {
    const env = { PRIVATEMODE_PROXY_TLS_KEY_PATH: 'k' };
    refused(() => parsed([], {}, env), ['PRIVATEMODE_PROXY_TLS_KEY_PATH needs --tls-cert-path']);
  });
});

describe('warnings about the configuration', () => {
  const cautions: [name: string, argv: string[], words: RegExp][] = [
    ['no API key', [], /^No API key provided\. .* Give one with --api-key or PRIVATEMODE_API_KEY/],
    ['a key that every web page can use', ['--api-key=k', '--cors-allowed-origins=*'], /every web page/],
    ['limits of each instance', ['--reuse-port', '--api-key=k', '--clients=c'], /--limits-store/],
    ['another --protocol-version', ['--protocol-version=v1.46.0'], /is an experiment/],
    ['--dump-requests', ['--dump-requests'], /writes every prompt/],
    [
      'other roots',
      ['--unsafe-trust-roots=r', '--api-endpoint=localhost:1'],
      /^UNSAFE: --unsafe-trust-roots/,
    ],
  ];
  for (const [name, argv, words] of cautions) {
    it(`tell of ${name}`, () => {
      const { warnings } = parsed(argv);
      assert.ok(
        warnings.some((warning) => words.test(warning)),
        JSON.stringify(warnings),
      );
    });
  }
  it('are tested, each of them', () => assert.equal(cautions.length, CAUTIONS.length));

  for (const [name, argv] of [
    ['a key alone', ['--api-key=k']],
    ['clients, with a key', ['--clients=c', '--api-key=k', '--cors-allowed-origins=*']],
    ['clients, with keys of their own', ['--clients=c']],
    [
      'web pages, where clients bring their keys',
      ['--api-key=k', '--api-key-fallback=never', '--cors-allowed-origins=*'],
    ],
  ] as const)
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
  const END = '127.0.0.1 keeps them out, and --tls-cert-path makes it HTTPS';
  const spent = (where: string, change = '--listen-address'): string =>
    `Other machines reach ${where} without TLS, and can spend the key: ${change} ${END}`;
  const admin = 'Other machines reach --admin-address 0.0.0.0, which asks for no key';
  const READ = `Other machines reach 0.0.0.0 without TLS, and read the tokens of --clients on the way: --listen-address ${END}`;
  for (const [name, argv, lines] of [
    ['with a key on every interface', [KEY], [spent('0.0.0.0')]],
    ['with a key on a host name', [KEY, '--listen-address=gpu-box'], [spent('gpu-box')]],
    ['with clients', ['--clients=c', KEY], [READ]],
    ['that of the admin', ['--listen-address=::1', '--admin-address=0.0.0.0:9090'], [admin]],
  ] as const)
    it(`is told ${name}`, () => assert.deepEqual(told(argv), lines));

  it('is told at level info in a container, and for a socket of systemd by its own address', () => {
    const all = [KEY, '--admin-address=0.0.0.0:9090'];
    for (const env of [{ container: 'oci' }, { KUBERNETES_SERVICE_HOST: '10.0.0.1' }])
      assert.deepEqual(told(all, env), [`info ${spent('0.0.0.0')}`, `info ${admin}`]);
    assert.deepEqual(told([KEY, '--listen-address=::1'], {}, '::'), [spent('::', 'ListenStream=')]);
    assert.deepEqual(told([KEY], {}, '127.0.0.1'), []);
  });

  for (const [name, argv] of [
    ['loopback', [KEY, '--listen-address=127.0.0.1', '--admin-address=[::1]:9090']],
    ['IPv6 loopback', [KEY, '--listen-address=::1']],
    ['localhost', ['--clients=c', '--listen-address=localhost', '--admin-address=localhost:9090']],
    ['a socket file', [KEY, '--listen-address=unix:/run/s']],
    ['TLS', [KEY, '--tls-cert-path=c', '--tls-key-path=k']],
    ['clients that bring their keys', [KEY, '--api-key-fallback=never']],
    ['no key at all', []],
  ] as const)
    it(`is not told with ${name}`, () => assert.deepEqual(told(argv), []));
});

it('NODE_TLS_REJECT_UNAUTHORIZED of the environment cannot switch off certificate checks', () => {
  const env = (value: string) => ({ NODE_TLS_REJECT_UNAUTHORIZED: value });
  refused(() => parsed([], {}, env('0')), ['NODE_TLS_REJECT_UNAUTHORIZED', 'SSL_CERT_FILE']);
  assert.ok(parsed([], {}, env('1')));
});
