import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { proxyFromEnvironment } from '../../lib/network/proxy-environment.ts';

const PROXY = 'http://proxy.example:3128';

describe('proxy of the environment', () => {
  for (const [env, expected] of [
    [{}, undefined],
    [{ https_proxy: '' }, undefined],
    [{ http_proxy: PROXY, HTTP_PROXY: PROXY }, undefined],
    [{ https_proxy: PROXY }, 'http://proxy.example:3128/'],
    [{ HTTPS_PROXY: 'https://other.example' }, 'https://other.example/'],
    [{ https_proxy: PROXY, HTTPS_PROXY: 'https://other.example' }, 'http://proxy.example:3128/'],
    [{ https_proxy: 'proxy.example:3128' }, 'http://proxy.example:3128/'],
  ] as const) {
    it(`${JSON.stringify(env)} → ${expected}`, () => {
      assert.equal(proxyFromEnvironment(env)('api.example', 443)?.href, expected);
    });
  }

  for (const value of [
    'socks5://user:hunter2@proxy.example:1080',
    'http://user:hunter2@',
    'ftp://hunter2',
    'http://[',
    'http://user:100%hunter2@proxy.example:3128',
    'http://100%hunter2@proxy.example:3128',
  ]) {
    it(`refuses ${value} without quoting it`, () => {
      assert.throws(
        () => proxyFromEnvironment({ https_proxy: value }),
        (error: unknown) =>
          error instanceof PrivatemodeError &&
          error.code === 'config_invalid' &&
          !error.message.includes('hunter2'),
      );
    });
  }
});

describe('a password in https_proxy', () => {
  it('stays percent-encoded', () => {
    const proxy = proxyFromEnvironment({ https_proxy: 'http://user:100%25@proxy.example:3128' })(
      'api.example',
      443,
    );
    assert.equal(proxy?.password, '100%25');
  });
  it('with a bare % is refused at the start, with a message on how to write it', () => {
    assert.throws(() => proxyFromEnvironment({ HTTPS_PROXY: 'http://user:100%@proxy.example:3128' }), {
      code: 'config_invalid',
      message: 'HTTPS_PROXY: in user and password write %25 for %, %40 for @, %3A for : and %2F for /',
    });
  });
});

describe('no_proxy', () => {
  const rows: [noProxy: string, host: string, port: number, direct: boolean][] = [
    ['*', 'api.example', 443, true],
    ['api.example', 'api.example', 443, true],
    ['api.example', 'API.Example.', 443, true],
    ['api.example', 'a.api.example', 443, true],
    ['api.example', 'myapi.example', 443, false],
    ['.example', 'api.example', 443, true],
    ['.api.example', 'api.example', 443, false],
    ['*.api.example', 'api.example', 443, false],
    ['*.api.example', 'x.api.example', 443, true],
    ['api.example:443', 'api.example', 443, true],
    ['api.example:443', 'api.example', 8443, false],
    ['other, api.example', 'api.example', 443, true],
    ['other api.example', 'api.example', 443, true],
    ['10.0.0.0/8', '10.1.2.3', 443, true],
    ['10.0.0.0/8', '11.1.2.3', 443, false],
    ['10.0.0.0/8', 'ten.example', 443, false],
    ['10.1.2.3', '10.1.2.3', 443, true],
    ['2.3', '10.1.2.3', 443, false],
    ['::1', '::1', 443, true],
    ['[::1]:8443', '[::1]', 8443, true],
    ['[::1]:8443', '::1', 443, false],
    ['fd00::/8', 'fd12::1', 443, true],
    ['', 'localhost', 443, false],
    ['10.0.0.0/99', '10.0.0.1', 443, false],
  ];
  for (const [noProxy, host, port, direct] of rows) {
    it(`"${noProxy}" ${direct ? 'exempts' : 'does not exempt'} ${host}:${port}`, () => {
      for (const name of ['no_proxy', 'NO_PROXY']) {
        const rule = proxyFromEnvironment({ https_proxy: PROXY, [name]: noProxy });
        assert.equal(rule(host, port) === undefined, direct);
      }
    });
  }
});
