/** Where the calls of both paths go: to the HTTP proxy of the environment, or past it. */
import assert from 'node:assert/strict';
import { request as httpsRequest } from 'node:https';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createControlCall } from '../../lib/network/control-call.ts';
import { createOutbound, type Outbound } from '../../lib/network/outbound.ts';
import { watchConnections } from '../support/doors/connections.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

type Env = Readonly<Record<string, string>>;

const authority = createTestAuthority('Ways Out');
const PROXY = 'http://proxy.example:3128';
const OTHER = 'https://other.example';
const VIA = 'proxy.example:3128';

const CALLS: Readonly<Record<string, (out: Outbound, url: string) => Promise<unknown>>> = {
  'control path': (out, url) =>
    createControlCall(out.dispatcher, systemClock)({ method: 'GET', url, maxBytes: 1, timeout: 5_000 }),
  'data path': (out, url) =>
    new Promise((resolve, reject) => {
      httpsRequest(url, { agent: out.agent() }, resolve).on('error', reject).end();
    }),
};

/** Nothing beyond this machine is reached: the call fails, and `watchConnections` has seen where it went. */
async function wayOf(
  t: TestContext,
  call: (out: Outbound, url: string) => Promise<unknown>,
  env: Env,
  url: string,
) {
  const out = createOutbound(env, {
    connectTimeout: 5_000,
    clock: systemClock,
    authorities: [authority.pem],
  });
  const watch = watchConnections();
  t.after(() => out.close());
  try {
    await assert.rejects(call(out, url));
    return watch.targets().join();
  } finally {
    watch.end();
  }
}

const ENVIRONMENTS: readonly (readonly [env: Env, url: string, way: string])[] = [
  [{}, 'https://api.example/', 'api.example:443'],
  [{ http_proxy: PROXY, HTTP_PROXY: PROXY }, 'https://api.example/', 'api.example:443'],
  [{ HTTPS_PROXY: PROXY }, 'https://api.example/', VIA],
  [{ https_proxy: PROXY, HTTPS_PROXY: OTHER }, 'https://api.example/', VIA],
  [{ https_proxy: '', HTTPS_PROXY: OTHER }, 'https://api.example/', 'other.example:443'],
  [{ https_proxy: 'proxy.example:3128' }, 'https://api.example/', VIA],
  [{ https_proxy: PROXY }, 'https://localhost:1/', VIA],
  [{ https_proxy: PROXY, no_proxy: 'other, example' }, 'https://api.example/', 'api.example:443'],
  [{ https_proxy: PROXY, NO_PROXY: 'API.example:8443' }, 'https://api.example:8443/', 'api.example:8443'],
  [{ https_proxy: PROXY, NO_PROXY: 'api.example:8443' }, 'https://api.example/', VIA],
  [{ https_proxy: PROXY, no_proxy: '10.0.0.0/8' }, 'https://10.1.2.3/', '10.1.2.3:443'],
  [{ https_proxy: PROXY, no_proxy: '*', NO_PROXY: 'other' }, 'https://api.example/', 'api.example:443'],
];

for (const [path, call] of Object.entries(CALLS)) {
  describe(`a call of the ${path}`, () => {
    for (const [env, url, way] of ENVIRONMENTS) {
      it(`to ${url} connects to ${way} with ${JSON.stringify(env)}`, async (t) => {
        assert.equal(await wayOf(t, call, env, url), way);
      });
    }
  });
}

describe('the address of an HTTP proxy', () => {
  for (const value of [
    'unix:/run/proxy.sock',
    '/run/proxy.sock',
    'socks5://proxy.example:1080',
    'proxy.example',
  ]) {
    it(`refuses the start if it is ${value}`, () => {
      const options = { connectTimeout: 5_000, clock: systemClock, authorities: [] };
      assert.throws(() => createOutbound({ https_proxy: value }, options), { code: 'config_invalid' });
    });
  }
});
