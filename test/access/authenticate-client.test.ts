/** Which client a request comes from, and what strangers are told. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import {
  authenticate,
  type Client,
  requireEndpoint,
  requireModel,
} from '../../lib/access/authenticate-client.ts';
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
  it('recognizes a client by any of its tokens, in Authorization or else in x-api-key', () => {
    for (const [what, head, name] of known) assert.equal(authenticated(head).name, name, what);
  });

  const form = /^Authorization is not of the form "Bearer TOKEN"$/;
  const nothing = /^no token was sent in Authorization or x-api-key/;
  const unknown: [what: string, head: Head, message: RegExp][] = [
    ['nothing', [undefined], nothing],
    ['an empty x-api-key', [undefined, ''], nothing],
    ['an empty Authorization and a right x-api-key', ['', 'bob-1'], form],
    ['another scheme', ['Basic ann-1'], form],
    ['a token without a scheme', ['ann-1'], form],
    ['a scheme alone', ['Bearer '], form],
    ['a token with more behind it', ['Bearer ann-1 x'], form],
    ['two blanks before its token', ['Bearer  ann-1'], form],
    ['a wrong token, and a right one in x-api-key', ['Bearer ann-3', 'ann-1'], /decides.* is not known$/],
    ['a wrong token', [undefined, 'ann-3'], /in x-api-key is not known$/],
    ['the beginning of a token', ['Bearer ann-'], /in Authorization is not known$/],
    ['a token in capitals', ['Bearer ANN-1'], /is not known$/],
    ['the digest of a token', [`Bearer ${digest('ann-1')}`], /is a hash, as the clients file holds it/],
    ['a token in quotes', [undefined, '"ann-1"'], /has quotes around it/],
    ['a scheme in x-api-key', [undefined, 'Bearer ann-1'], /begins with "Bearer"/],
    ['the placeholder', [undefined, 'placeholder'], /is the placeholder/],
  ];
  it('refuses every other token, and says what is wrong and how to send one', () => {
    for (const [what, head, message] of unknown)
      assert.throws(
        () => authenticated(head),
        { code: 'client_unknown', message, remedy: /"Authorization: Bearer TOKEN"/ },
        what,
      );
  });

  it('refuses a client from its expiry on, and says whom to ask for more time', () => {
    assert.equal(authenticated(['Bearer eve-1'], EXPIRY - 1).name, 'eve');
    const message = 'the token has expired';
    assert.throws(() => authenticated(['Bearer eve-1'], EXPIRY), { code: 'client_unknown', message });
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
  it('may use only the models that a pattern of its list covers as a whole', () => {
    for (const [patterns, model, expected] of models) {
      const found = codeOf(() => requireModel(client('ann', [], { models: patterns }), model));
      assert.equal(found, expected, `${patterns} ${model}`);
    }
  });

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
