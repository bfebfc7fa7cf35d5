import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { parseConfig } from '../../lib/config/config.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { proxyFromEnvironment } from '../../lib/network/outbound-proxy.ts';

/**
 * What `read` gives, or undefined where it refuses, as `config_invalid` and without the text that may be
 * secret.
 */
function configured<T>(read: () => T, secret?: string): T | undefined {
  try {
    return read();
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError, String(thrown));
    assert.equal(thrown.code, 'config_invalid');
    if (secret !== undefined && secret.length > 8) assert.ok(!thrown.message.includes(secret));
    return undefined;
  }
}

const anything = fc.string({ unit: 'binary', maxLength: 40 });
const host = fc.oneof(
  fc.domain(),
  fc.ipV4(),
  fc.ipV6().map((address) => `[${address}]`),
);
const port = fc.integer({ min: 1, max: 65_535 });

describe('any environment', () => {
  const proxy = fc.oneof(
    anything,
    fc.webUrl(),
    fc
      .tuple(fc.constantFrom('http://', 'https://', 'socks5://', ''), host, port)
      .map(([s, h, p]) => `${s}${h}:${p}`),
  );
  const exception = fc.oneof(
    anything,
    host,
    fc.tuple(host, port).map(([h, p]) => `${h}:${p}`),
    fc.tuple(fc.oneof(fc.ipV4(), fc.ipV6()), fc.nat(140)).map(([address, bits]) => `${address}/${bits}`),
    fc.domain().map((name) => `*.${name}`),
  );

  it('gives a proxy rule that answers for every host, or a typed error that does not quote the value', () => {
    let rules = 0;
    fc.assert(
      fc.property(proxy, fc.array(exception, { maxLength: 4 }), host, port, (value, exceptions, to, at) => {
        const env = { https_proxy: value, no_proxy: exceptions.join(',') };
        const rule = configured(() => proxyFromEnvironment(env), value);
        if (rule === undefined) return;
        rules += 1;
        if (rule.exempts(to, at)) assert.notEqual(env.no_proxy, '');
        assert.match(rule.proxy.protocol, /^https?:$/);
        // Who is named, with its port or without, is exempt.
        for (const entry of [to, `${to}:${at}`]) {
          const direct = proxyFromEnvironment({ ...env, no_proxy: `${env.no_proxy},${entry}` });
          assert.equal(direct?.exempts(to, at), true, entry);
        }
      }),
      { seed: 20261121, numRuns: 1_000 },
    );
    assert.ok(rules > 100, `only ${rules} rules`);
  });
});

const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 200 }),
  anything.map((text) => Buffer.from(text)),
);

it('any file of a flag gives a frozen configuration, or a typed error that does not quote the file', () => {
  let accepted = 0;
  fc.assert(
    fc.property(bytes, fc.constantFrom('--api-key=@f', '--prompt-cache-salt=@f'), (file, flag) => {
      const argv = [flag, '--disable-prompt-cache=false'];
      const text = Buffer.from(file).toString('utf8').trim();
      const parsed = configured(() => parseConfig(argv, {}, () => file), text);
      if (parsed === undefined) return;
      accepted += 1;
      assert.ok(Object.isFrozen(parsed.config));
      const again = parseConfig(argv, {}, () => file);
      assert.deepEqual(again, parsed);
    }),
    { seed: 20261121, numRuns: 1_000 },
  );
  assert.ok(accepted > 50, `only ${accepted} were accepted`);
});
