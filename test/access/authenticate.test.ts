/** Which client a request comes from, and what strangers are told. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import {
  authenticate,
  type Client,
  createThrottle,
  requireEndpoint,
  requireModel,
} from '../../lib/access/authenticate.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { TIMES } from '../../lib/times.ts';
import { clientOf } from '../support/doors/clients.ts';

const digest = (token: string): Uint8Array => createHash('sha256').update(token).digest();

const client = (name: string, tokens: readonly string[], more: Partial<Client> = {}): Client =>
  clientOf({ name, tokens: tokens.map(digest), ...more });

const EXPIRY = Date.UTC(2027, 0, 1);
const CLIENTS = [
  client('ann', ['ann-1', 'ann-2']),
  client('bob', ['bob-1']),
  client('eve', ['eve-1'], { expires: EXPIRY }),
];

/** Name of the client, or the code of the error. */
function outcome(
  head: { authorization?: string; apiKeyHeader?: string },
  { throttle = createThrottle(TIMES.throttleWindow), address = '10.0.0.1', now = EXPIRY - 1 } = {},
): string {
  const { authorization, apiKeyHeader } = head;
  try {
    return authenticate({ authorization, apiKeyHeader, address }, CLIENTS, throttle, now).name;
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError);
    return thrown.code;
  }
}

describe('authentication of a client', () => {
  const heads: [what: string, head: Parameters<typeof outcome>[0], outcome: string][] = [
    ['a bearer', { authorization: 'Bearer ann-1' }, 'ann'],
    ['its second token', { authorization: 'Bearer ann-2' }, 'ann'],
    ['a bearer in small letters', { authorization: 'bearer bob-1' }, 'bob'],
    ['x-api-key', { apiKeyHeader: 'bob-1' }, 'bob'],
    [
      'both headers, of which Authorization decides',
      { authorization: 'Bearer ann-1', apiKeyHeader: 'bob-1' },
      'ann',
    ],
    [
      'a wrong bearer and a right x-api-key',
      { authorization: 'Bearer no', apiKeyHeader: 'bob-1' },
      'client_unknown',
    ],
    [
      'an empty Authorization and a right x-api-key',
      { authorization: '', apiKeyHeader: 'bob-1' },
      'client_unknown',
    ],
    ['another scheme', { authorization: 'Basic ann-1' }, 'client_unknown'],
    ['a token without a scheme', { authorization: 'ann-1' }, 'client_unknown'],
    ['a token with more behind it', { authorization: 'Bearer ann-1 x' }, 'client_unknown'],
    ['two blanks before its token', { authorization: 'Bearer  ann-1' }, 'client_unknown'],
    ['a scheme alone', { authorization: 'Bearer ' }, 'client_unknown'],
    ['the beginning of a token', { authorization: 'Bearer ann-' }, 'client_unknown'],
    [
      'the digest of a token',
      { authorization: `Bearer ${Buffer.from(digest('ann-1')).toString('hex')}` },
      'client_unknown',
    ],
    ['an empty x-api-key', { apiKeyHeader: '' }, 'client_unknown'],
    ['nothing', {}, 'client_unknown'],
    ['a token that has not expired', { authorization: 'Bearer eve-1' }, 'eve'],
  ];
  for (const [what, head, expected] of heads)
    it(`${expected === 'client_unknown' ? 'refuses a client' : `recognizes ${expected} as the client`} that sends ${what}`, () =>
      assert.equal(outcome(head), expected));

  const mistakes: [what: string, head: Parameters<typeof outcome>[0], message: string][] = [
    [
      'nothing',
      {},
      'no token was sent in Authorization or x-api-key, and neither other headers nor the URL are read for one',
    ],
    [
      'a token without a scheme',
      { authorization: 'ann-1' },
      'Authorization is not of the form "Bearer TOKEN"',
    ],
    ['another scheme', { authorization: 'Basic YW5u' }, 'Authorization is not of the form "Bearer TOKEN"'],
    [
      'a hash',
      { authorization: `Bearer ${'0a'.repeat(32)}` },
      'the token in Authorization is a hash, as the clients file holds it, and not the token, which "privatemode-proxy clients new" printed once',
    ],
    [
      'a hash in capitals, in x-api-key',
      { apiKeyHeader: '0A'.repeat(32) },
      'the token in x-api-key is a hash, as the clients file holds it, and not the token, which "privatemode-proxy clients new" printed once',
    ],
    [
      'a wrong token, and a right one in x-api-key',
      { authorization: 'Bearer ann-3', apiKeyHeader: 'ann-1' },
      'the token in Authorization, which decides if x-api-key is sent too, is not known',
    ],
    [
      'a token in quotes',
      { apiKeyHeader: '"ann-1"' },
      'the token in x-api-key has quotes around it: leave them out',
    ],
    [
      'a scheme in x-api-key',
      { apiKeyHeader: 'Bearer ann-1' },
      'the token in x-api-key begins with "Bearer", which stands in Authorization only',
    ],
    [
      'the placeholder',
      { apiKeyHeader: 'placeholder' },
      'the token in x-api-key is the placeholder, which is for gateways without --clients',
    ],
    ['a wrong token', { apiKeyHeader: 'ann-3' }, 'the token in x-api-key is not known'],
  ];
  for (const [what, { authorization, apiKeyHeader }, message] of mistakes)
    it(`tells a client that sends ${what} what is wrong and how to send its token`, () => {
      const credentials = { authorization, apiKeyHeader, address: '10.0.0.1' };
      assert.throws(() => authenticate(credentials, CLIENTS, createThrottle(TIMES.throttleWindow), 0), {
        message,
        remedy:
          'Send the token that you were given for this gateway, which is no key of the service, as "Authorization: Bearer TOKEN" or in x-api-key.',
      });
    });

  it('tells a client that has expired whom to ask for more time', () => {
    const credentials = { authorization: 'Bearer eve-1', apiKeyHeader: undefined, address: undefined };
    assert.throws(() => authenticate(credentials, CLIENTS, createThrottle(TIMES.throttleWindow), EXPIRY), {
      message: 'the token has expired',
      remedy: 'Ask the operator of this gateway for more time ("expires" in the file of --clients).',
    });
  });

  it('refuses a client from its expiry on', () => {
    const head = { authorization: 'Bearer eve-1' };
    assert.equal(outcome(head, { now: EXPIRY - 1 }), 'eve');
    assert.equal(outcome(head, { now: EXPIRY }), 'client_unknown');
    assert.equal(outcome({ authorization: 'Bearer ann-1' }, { now: EXPIRY }), 'ann');
  });

  it('looks at the digests of all tokens, whichever token was sent', () => {
    let looked = 0;
    const watched = CLIENTS.map((each) => ({
      ...each,
      tokens: {
        *[Symbol.iterator]() {
          for (const token of each.tokens) {
            looked += 1;
            yield token;
          }
        },
      } as unknown as Client['tokens'],
    }));
    for (const token of ['ann-1', 'ann-2', 'eve-1', 'nobody']) {
      looked = 0;
      const credentials = { authorization: `Bearer ${token}`, apiKeyHeader: undefined, address: undefined };
      try {
        authenticate(credentials, watched, createThrottle(TIMES.throttleWindow), 0);
      } catch {
        assert.equal(token, 'nobody');
      }
      assert.equal(looked, 4, token);
    }
  });

  it('compares the digests of tokens in constant time', () => {
    const source = readFileSync(join(import.meta.dirname, '../../lib/access/authenticate.ts'), 'utf8');
    assert.match(source, /if \(constantTimeEqual\(digest, offered\)\)/);
  });
});

describe('requests without a known token', () => {
  const wrong = { authorization: 'Bearer wrong' };
  const ask = (
    throttle: ReturnType<typeof createThrottle>,
    address: string,
    now: number,
    times = 1,
  ): string[] => Array.from({ length: times }, () => outcome(wrong, { throttle, address, now }));

  it('get client_throttled after 20 failures in a minute, and no longer in the next minute', () => {
    const throttle = createThrottle(TIMES.throttleWindow);
    assert.deepEqual(new Set(ask(throttle, '10.0.0.1', 0, 20)), new Set(['client_unknown']));
    assert.deepEqual(ask(throttle, '10.0.0.1', 59_999), ['client_throttled']);
    assert.deepEqual(ask(throttle, '10.0.0.1', 60_000), ['client_unknown']);
  });

  it('are counted for each address, and do not lock out a known client at the same address', () => {
    const throttle = createThrottle(TIMES.throttleWindow);
    ask(throttle, '10.0.0.1', 0, 30);
    assert.deepEqual(ask(throttle, '10.0.0.2', 0), ['client_unknown']);
    const right = { authorization: 'Bearer ann-1' };
    assert.equal(outcome(right, { throttle, address: '10.0.0.1', now: 0 }), 'ann');
  });

  const networks: [first: string, second: string, same: boolean][] = [
    ['2001:db8:1:2::1', '2001:db8:1:2:ffff::', true],
    ['2001:db8:1:2::1', '2001:db8:1:3::1', false],
    ['2001:db8::1', '2001:db8:0:0:1::', true],
    ['fe80::1%eth0', 'fe80::2%eth1', true],
    ['::ffff:10.0.0.1', '10.0.0.1', true],
    ['::ffff:10.0.0.1', '::ffff:10.0.0.2', false],
  ];
  for (const [first, second, same] of networks) {
    it(`from ${first} and ${second} are counted ${same ? 'together' : 'apart'}`, () => {
      const throttle = createThrottle(TIMES.throttleWindow);
      ask(throttle, first, 0, 20);
      assert.deepEqual(ask(throttle, second, 0), [same ? 'client_throttled' : 'client_unknown']);
    });
  }

  it('are counted for at most 1,024 addresses', () => {
    const throttle = createThrottle(TIMES.throttleWindow);
    for (let i = 0; i < 5_000; i++) throttle.failed(`10.0.${i >> 8}.${i & 255}`, i);
    assert.equal(throttle.size(), 1024);
  });

  it('are counted from zero after the clock was set back', () => {
    const throttle = createThrottle(TIMES.throttleWindow);
    ask(throttle, '10.0.0.1', 1_000_000, 30);
    assert.deepEqual(ask(throttle, '10.0.0.1', 0), ['client_unknown']);
  });
});

describe('a client', () => {
  const code = (action: () => void): string => {
    try {
      action();
    } catch (thrown) {
      assert.ok(thrown instanceof PrivatemodeError);
      return thrown.code;
    }
    return 'passes';
  };
  const models: [patterns: readonly string[] | undefined, model: string | undefined, outcome: string][] = [
    [undefined, 'any', 'passes'],
    [['gpt'], 'gpt', 'passes'],
    [['gpt'], 'gpt-2', 'client_forbidden'],
    [['gpt'], 'GPT', 'client_forbidden'],
    [['gpt-*'], 'gpt-', 'passes'],
    [['gpt-*'], 'gpt-4.1', 'passes'],
    [['gpt-*'], 'a-gpt-4', 'client_forbidden'],
    [['*-mini'], 'gpt-mini', 'passes'],
    [['a*b*c'], 'a1b2c', 'passes'],
    [['a*b*c'], 'acb', 'client_forbidden'],
    [['ab*ba'], 'aba', 'client_forbidden'],
    [['a*a'], 'a', 'client_forbidden'],
    [['*b*b*'], 'b', 'client_forbidden'],
    [['*ab*b'], 'ab', 'client_forbidden'],
    [['*'], '', 'passes'],
    [['gpt.4'], 'gpt-4', 'client_forbidden'],
    [['one', 'two'], 'two', 'passes'],
    [['one'], undefined, 'passes'],
  ];
  for (const [patterns, model, expected] of models) {
    it(`${expected === 'passes' ? 'may' : 'may not'} ${model === undefined ? 'send a request without a model' : `use the model "${model}"`} if ${patterns === undefined ? 'it has no list of models' : `its models are ${patterns}`}`, () =>
      assert.equal(
        code(() => requireModel(client('ann', [], { models: patterns }), model)),
        expected,
      ));
  }

  it('is told in the refusal up to eight of the models or endpoints that it may use', () => {
    const many = Array.from({ length: 9 }, (_, i) => `m${i}`);
    assert.throws(() => requireModel(client('ann', [], { models: ['gpt-*', 'one'] }), 'two'), {
      message: 'this client may not use this model, only gpt-*, one',
    });
    assert.throws(() => requireModel(client('ann', [], { models: many }), 'two'), {
      message: 'this client may not use this model, only m0, m1, m2, m3, m4, m5, m6, m7 and others',
    });
    assert.throws(() => requireEndpoint(client('ann', [], { endpoints: ['chat'] }), 'models'), {
      message: 'this client may not use this endpoint, only chat',
    });
  });

  it('is refused a model within seconds even if the pattern of its models has 121 asterisks', () => {
    const patterns = [`${'*a'.repeat(120)}*b`];
    const begun = performance.now();
    assert.equal(
      code(() => requireModel(client('ann', [], { models: patterns }), 'a'.repeat(256))),
      'client_forbidden',
    );
    assert.ok(performance.now() - begun < 10_000); // a regular expression would take years
  });

  it('may use only the endpoints in its list, and all endpoints if it has no list', () => {
    const ann = client('ann', [], { endpoints: ['chat'] });
    assert.equal(
      code(() => requireEndpoint(ann, 'chat')),
      'passes',
    );
    assert.equal(
      code(() => requireEndpoint(ann, 'models')),
      'client_forbidden',
    );
    assert.equal(
      code(() => requireEndpoint(client('bob', []), 'models')),
      'passes',
    );
  });
});
