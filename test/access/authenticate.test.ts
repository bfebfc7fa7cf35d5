/** Which client a request comes from, and what strangers are told. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { authenticate, type Client, requireEndpoint, requireModel } from '../../lib/access/authenticate.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { clientOf } from '../support/doors/clients.ts';

const digest = (token: string): string => createHash('sha256').update(token).digest('hex');

const client = (name: string, tokens: readonly string[], more: Partial<Client> = {}): Client =>
  clientOf({ name, tokens: tokens.map(digest), ...more });

const EXPIRY = Date.UTC(2027, 0, 1);
const CLIENTS = new Map(
  [
    client('ann', ['ann-1', 'ann-2']),
    client('bob', ['bob-1']),
    client('eve', ['eve-1'], { expires: EXPIRY }),
  ].flatMap((one) => one.tokens.map((sha256) => [sha256, one])),
);

type Head = readonly [authorization: string | undefined, apiKeyHeader?: string];
const authenticated = ([authorization, apiKeyHeader]: Head, now = EXPIRY - 1): Client =>
  authenticate({ authorization, apiKeyHeader }, CLIENTS, now);

/** The code of the error, if there is one. */
function codeOf<T>(action: () => T): T | string {
  try {
    return action();
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError);
    return thrown.code;
  }
}

describe('authentication of a client', () => {
  const known: [what: string, head: Head, name: string][] = [
    ['a bearer', ['Bearer ann-1'], 'ann'],
    ['its second token', ['Bearer ann-2'], 'ann'],
    ['a bearer in small letters', ['bearer bob-1'], 'bob'],
    ['x-api-key', [undefined, 'bob-1'], 'bob'],
    ['both headers, of which Authorization decides', ['Bearer ann-1', 'bob-1'], 'ann'],
    ['a token that has not expired', ['Bearer eve-1'], 'eve'],
  ];
  for (const [what, head, name] of known)
    it(`recognizes ${name} as the client that sends ${what}`, () =>
      assert.equal(authenticated(head).name, name));

  const inBearer = 'the token in Authorization ';
  const inKey = 'the token in x-api-key ';
  const both = 'the token in Authorization, which decides if x-api-key is sent too, ';
  const hash =
    'is a hash, as the clients file holds it, and not the token, which "privatemode-proxy clients new" printed once';
  const form = 'Authorization is not of the form "Bearer TOKEN"';
  const nothing =
    'no token was sent in Authorization or x-api-key, and neither other headers nor the URL are read for one';
  const unknown: [what: string, head: Head, message: string][] = [
    ['nothing', [undefined], nothing],
    ['an empty x-api-key', [undefined, ''], nothing],
    ['an empty Authorization and a right x-api-key', ['', 'bob-1'], form],
    ['another scheme', ['Basic ann-1'], form],
    ['a token without a scheme', ['ann-1'], form],
    ['a scheme alone', ['Bearer '], form],
    ['a token with more behind it', ['Bearer ann-1 x'], form],
    ['two blanks before its token', ['Bearer  ann-1'], form],
    ['a wrong token, and a right one in x-api-key', ['Bearer ann-3', 'ann-1'], `${both}is not known`],
    ['a wrong token', [undefined, 'ann-3'], `${inKey}is not known`],
    ['the beginning of a token', ['Bearer ann-'], `${inBearer}is not known`],
    ['a token in capitals', ['Bearer ANN-1'], `${inBearer}is not known`],
    ['the digest of a token', [`Bearer ${digest('ann-1')}`], inBearer + hash],
    ['a hash in capitals, in x-api-key', [undefined, '0A'.repeat(32)], inKey + hash],
    ['a token in quotes', [undefined, '"ann-1"'], `${inKey}has quotes around it: leave them out`],
    [
      'a scheme in x-api-key',
      [undefined, 'Bearer ann-1'],
      `${inKey}begins with "Bearer", which stands in Authorization only`,
    ],
    [
      'the placeholder',
      [undefined, 'placeholder'],
      `${inKey}is the placeholder, which is for gateways without --clients`,
    ],
  ];
  for (const [what, head, message] of unknown)
    it(`refuses a client that sends ${what}, and says what is wrong and how to send a token`, () =>
      assert.throws(() => authenticated(head), {
        code: 'client_unknown',
        message,
        remedy:
          'Send the token that you were given for this gateway, which is no key of the service, as "Authorization: Bearer TOKEN" or in x-api-key.',
      }));

  it('refuses a client from its expiry on, and says whom to ask for more time', () => {
    assert.equal(authenticated(['Bearer eve-1'], EXPIRY - 1).name, 'eve');
    assert.throws(() => authenticated(['Bearer eve-1'], EXPIRY), {
      code: 'client_unknown',
      message: 'the token has expired',
      remedy: 'Ask the operator of this gateway for more time ("expires" in the file of --clients).',
    });
    assert.equal(authenticated(['Bearer ann-1'], EXPIRY).name, 'ann');
  });
});

describe('a client', () => {
  const PASSES = undefined;
  const models: [
    patterns: readonly string[] | undefined,
    model: string | undefined,
    outcome: string | undefined,
  ][] = [
    [undefined, 'any', PASSES],
    [['gpt'], 'gpt', PASSES],
    [['gpt'], 'gpt-2', 'client_forbidden'],
    [['gpt'], 'GPT', 'client_forbidden'],
    [['gpt-*'], 'gpt-', PASSES],
    [['gpt-*'], 'gpt-4.1', PASSES],
    [['gpt-*'], 'a-gpt-4', 'client_forbidden'],
    [['*-mini'], 'gpt-mini', PASSES],
    [['a*b*c'], 'a1b2c', PASSES],
    [['a*b*c'], 'acb', 'client_forbidden'],
    [['ab*ba'], 'aba', 'client_forbidden'],
    [['a*a'], 'a', 'client_forbidden'],
    [['*b*b*'], 'b', 'client_forbidden'],
    [['*ab*b'], 'ab', 'client_forbidden'],
    [['*'], '', PASSES],
    [['gpt.4'], 'gpt-4', 'client_forbidden'],
    [['one', 'two'], 'two', PASSES],
    [['one'], undefined, PASSES],
  ];
  for (const [patterns, model, expected] of models) {
    it(`${expected === PASSES ? 'may' : 'may not'} ${model === undefined ? 'send a request without a model' : `use the model "${model}"`} if ${patterns === undefined ? 'it has no list of models' : `its models are ${patterns}`}`, () =>
      assert.equal(
        codeOf(() => requireModel(client('ann', [], { models: patterns }), model)),
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
    const ann = client('ann', [], { models: [`${'*a'.repeat(120)}*b`] });
    const begun = performance.now();
    assert.throws(() => requireModel(ann, 'a'.repeat(256)), { code: 'client_forbidden' });
    assert.ok(performance.now() - begun < 10_000); // a regular expression would take years
  });

  it('may use only the endpoints in its list, and all endpoints if it has no list', () => {
    const ann = client('ann', [], { endpoints: ['chat'] });
    requireEndpoint(ann, 'chat');
    assert.throws(() => requireEndpoint(ann, 'models'), { code: 'client_forbidden' });
    requireEndpoint(client('bob', []), 'models');
  });
});
