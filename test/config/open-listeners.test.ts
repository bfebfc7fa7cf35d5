import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseConfig } from '../../lib/config/config.ts';
import { openListeners } from '../../lib/config/open-listeners.ts';

const found = (argv: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  openListeners(parseConfig(argv, {}, () => Buffer.from('x')).config, env).map(
    ({ listener, isMeant, message }) => `${listener} ${isMeant ? 'meant' : 'not meant'}: ${message}`,
  );

const KEY = '--api-key=@k';
const SPENT =
  'without TLS: everybody who reaches the port can spend the key, and prompts cross the network in plain text';

describe('a listener', () => {
  for (const [name, argv, expected] of [
    ['with a key on every interface', [KEY], `proxy not meant: --listen-address 0.0.0.0 ${SPENT}`],
    [
      'with a key on a host name',
      [KEY, '--listen-address=gpu-box'],
      `proxy not meant: --listen-address gpu-box ${SPENT}`,
    ],
    [
      'with clients and without TLS',
      ['--clients=c'],
      'proxy not meant: --listen-address 0.0.0.0 without TLS: the tokens of --clients and all prompts cross the network in plain text',
    ],
    [
      'if --admin-address names every interface',
      [KEY, '--listen-address=127.0.0.1', '--admin-address=0.0.0.0:9090'],
      'admin not meant: --admin-address names 0.0.0.0',
    ],
  ] as const)
    it(`is reported as open beyond this machine ${name}`, () => assert.deepEqual(found(argv), [expected]));

  it('is reported as open on purpose in a container of the published image or of Kubernetes', () => {
    for (const env of [{ container: 'oci' }, { KUBERNETES_SERVICE_HOST: '10.0.0.1' }])
      assert.deepEqual(found([KEY, '--admin-address=0.0.0.0:9090'], env), [
        `proxy meant: --listen-address 0.0.0.0 ${SPENT}`,
        'admin meant: --admin-address names 0.0.0.0',
      ]);
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
    it(`is not reported as open beyond this machine with ${name}`, () => assert.deepEqual(found(argv), []));
});
