/** The file of --clients: what is in it, what is refused, and that no error quotes a token. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parseClientsFile } from '../../lib/access/clients-file.ts';
import { PrivatemodeError } from '../../lib/errors.ts';

const DIGEST = '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae'; // of "foo"
const OTHER = 'fcde2b2edba56bf408601fb721fe9b5c338d25ee5ff08c1d2b1d2e3cfb0ef1a7';
const TOKEN = 'pmp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde';

const parse = (file: unknown, needsKeys = false) =>
  parseClientsFile(Buffer.from(typeof file === 'string' ? file : JSON.stringify(file)), { needsKeys });
const one = (members: object) => ({ clients: [{ name: 'ann', tokens: [DIGEST], ...members }] });

const LIMITS = { requestsPerMinute: 1, tokensPerDay: 2_147_483_648, maxConcurrent: 60 };
const NO_LIMITS = { requestsPerMinute: undefined, tokensPerDay: undefined, maxConcurrent: undefined };

const ACCEPTED: [what: string, members: object, read: object][] = [
  [
    'a name and a token alone',
    {},
    { name: 'ann', cacheSalt: 'client', expires: undefined, apiKeyFile: undefined },
  ],
  ['a name as of mail', { name: 'ann.b_c-d@example.com' }, { name: 'ann.b_c-d@example.com' }],
  ['a time in UTC', { expires: '2027-01-31T00:00:00Z' }, { expires: 1801353600000 }],
  ['a time with an offset', { expires: '2027-01-31T02:00:00.5+02:00' }, { expires: 1801353600500 }],
  ['a time in small letters', { expires: '2027-01-31t00:00:00z' }, { expires: 1801353600000 }],
  ['a leap day', { expires: '2028-02-29T00:00:00Z' }, { expires: 1835395200000 }],
  ['models', { models: ['gpt-*', '*'] }, { models: ['gpt-*', '*'] }],
  ['endpoints', { endpoints: ['chat', 'models', 'model'] }, { endpoints: ['chat', 'models', 'model'] }],
  ['a key file', { apiKey: '@keys/ann' }, { apiKeyFile: 'keys/ann' }],
  ['a shared cache', { cacheSalt: 'shared' }, { cacheSalt: 'shared' }],
  ['a cache by own salts', { cacheSalt: 'own' }, { cacheSalt: 'own' }],
  ['no limits', {}, { limits: NO_LIMITS }],
  ['limits, from the smallest to the largest', LIMITS, { limits: LIMITS }],
];

/** A number of a limit, as it is written. */
const limited = (name: string, value: string): string =>
  `{"clients":[{"name":"ann","tokens":["${DIGEST}"],"${name}":${value}}]}`;

const REFUSED: [what: string, file: unknown, words: string][] = [
  ['no JSON', '{', 'not JSON at character 1, in line 1'],
  ['no JSON in its third line', '{\n"clients":\n[}', 'not JSON at character 14, in line 3'],
  ['no text', '', 'the file is empty'],
  ['a byte order mark', '\ufeff{"clients":[]}', 'the file begins with a byte order mark'],
  ['another value than an object', [], 'the file: expected an object'],
  ['no list of clients', {}, 'clients: expected a list of clients'],
  ['an unknown member', { clients: [], client: [] }, 'client: expected a known member'],
  ['a client that is a text', { clients: [TOKEN] }, 'clients[0]: expected an object'],
  ['a member twice', `{"clients":[],"clients":[]}`, 'appears twice'],
  ['no name', { clients: [{ tokens: [DIGEST] }] }, 'clients[0].name: expected a name'],
  ...[
    '',
    'ann b',
    'ann\n',
    '.ann',
    '@ann',
    '-ann',
    '__proto__',
    'ann\0',
    'änn',
    'ann/..',
    'а',
    'a'.repeat(65),
  ].map((name): (typeof REFUSED)[number] => [
    `the name ${JSON.stringify(name)}`,
    one({ name }),
    'clients[0].name: expected a name of at most 64 letters',
  ]),
  ['no tokens', { clients: [{ name: 'ann' }] }, 'clients[0].tokens: expected a list'],
  [
    'an empty list of tokens',
    one({ tokens: [] }),
    'clients[0].tokens: expected a list of at least one digest',
  ],
  [
    'a token in place of its digest',
    one({ tokens: [DIGEST, TOKEN] }),
    'clients[0].tokens[1]: expected the SHA-256',
  ],
  [
    'a digest in capitals',
    one({ tokens: [DIGEST.toUpperCase()] }),
    'clients[0].tokens[0]: expected the SHA-256',
  ],
  ['a token as the name of a member', one({ [TOKEN]: 1 }), 'clients[0].…: expected a known member'],
  ['a digest as the name of a member', { clients: [], [DIGEST]: 1 }, '…: expected a known member'],
  ['a digest as the name of a member, twice', `{"${DIGEST}":1,"${DIGEST}":2}`, 'appears twice'],
  ...['2027-01-31', '2027-01-31T00:00:00', '2027-02-30T00:00:00Z', '2027-02-03T24:00:00Z', 1].map(
    (expires): (typeof REFUSED)[number] => [
      `the time ${expires}`,
      one({ expires }),
      'clients[0].expires: expected a time',
    ],
  ),
  ['no models', one({ models: [] }), 'clients[0].models: expected a list of at least one'],
  ['an empty model', one({ models: [''] }), 'clients[0].models[0]'],
  [
    'an unknown endpoint',
    one({ endpoints: ['chat', 'chats'] }),
    'clients[0].endpoints[1]: expected one of chat,',
  ],
  ['a default name', { defaults: { name: 'x' }, clients: [] }, 'defaults.name: expected a known member'],
  ['a default token', { defaults: { tokens: 'x' }, clients: [] }, 'defaults.tokens: expected a known member'],
  ['a default key', { defaults: { apiKey: 'x' }, clients: [] }, 'defaults.apiKey: expected a known member'],
  [
    'a default that is a text',
    { defaults: { maxConcurrent: '7' }, clients: [] },
    'defaults.maxConcurrent: expected',
  ],
  ['defaults that are a list', { defaults: [], clients: [] }, 'defaults: expected an object'],
  ['a key in place of its file', one({ apiKey: TOKEN }), 'clients[0].apiKey: expected @ and the path'],
  [
    'an unknown salt rule',
    one({ cacheSalt: 'none' }),
    'clients[0].cacheSalt: expected one of client, shared, own',
  ],
  ...['0', '-1', '1.0', '1e3', '2147483649', '99999999999999999999', '"1"', 'null'].map(
    (value): (typeof REFUSED)[number] => [
      `the limit ${value}`,
      limited('tokensPerDay', value),
      'clients[0].tokensPerDay: expected a whole number from 1 to 2147483648',
    ],
  ),
  [
    'two clients of one name',
    { clients: [...one({}).clients, { name: 'ann', tokens: [OTHER] }] },
    'clients[1].name: expected a name that no other client has; clients[0] has it too',
  ],
  [
    'a token of two clients',
    { clients: [...one({}).clients, { name: 'bob', tokens: [OTHER, DIGEST] }] },
    'clients[1].tokens[1]: expected a token that is in the file once',
  ],
  ['more than 1,048,576 bytes', `${' '.repeat(1024 * 1024)}{"clients":[]}`, 'at most 1048576 bytes'],
];

describe('the file of --clients', () => {
  it('may have what the page of the file says', () => {
    for (const [what, members, read] of ACCEPTED) {
      const [entry] = parse({ $schema: './clients-file.schema.json', ...one(members) });
      for (const [name, value] of Object.entries(read))
        assert.deepEqual(entry?.[name as keyof typeof entry], value, what);
      assert.deepEqual(entry?.tokens, [DIGEST]);
    }
  });

  it('is refused with anything else, by an error that names the place and quotes no token or digest', () => {
    for (const [what, file, words] of REFUSED)
      assert.throws(
        () => parse(file),
        (thrown) => {
          assert.ok(thrown instanceof PrivatemodeError && thrown.code === 'config_invalid', `${thrown}`);
          assert.ok(thrown.message.startsWith('--clients: '), thrown.message);
          assert.ok(thrown.message.includes(words), `${what}: ${thrown.message}`);
          for (const secret of [DIGEST, TOKEN, OTHER])
            assert.ok(!thrown.message.toLowerCase().includes(secret.slice(0, 12).toLowerCase()), 'it quotes');
          return true;
        },
      );
  });

  it('may have defaults, each for the clients that do not set their own value', () => {
    const often = { requestsPerMinute: 7, cacheSalt: 'own' };
    const defaults = { expires: '2027-01-31T00:00:00Z', models: ['m'], ...often };
    const own = { models: ['n'], requestsPerMinute: 60, cacheSalt: 'client', maxConcurrent: 2 };
    const clients = [...one({}).clients, { name: 'bob', tokens: [OTHER], ...own }];
    const [ann, bob] = parse({ defaults, clients });
    assert.deepEqual(
      [ann?.expires, ann?.models, ann?.limits.requestsPerMinute, ann?.limits.maxConcurrent, ann?.cacheSalt],
      [1801353600000, ['m'], 7, undefined, 'own'],
    );
    assert.deepEqual(
      [bob?.expires, bob?.models, bob?.limits.requestsPerMinute, bob?.limits.maxConcurrent, bob?.cacheSalt],
      [1801353600000, ['n'], 60, 2, 'client'],
    );
    assert.ok(Object.isFrozen(ann) && Object.isFrozen(ann?.models) && Object.isFrozen(ann?.limits));
  });

  it('may have at most 4,096 tokens', () => {
    const withTokens = (count: number) =>
      one({ tokens: Array.from({ length: count }, (_, i) => i.toString(16).padStart(64, '0')) });
    assert.equal(parse(withTokens(4096))[0]?.tokens.length, 4096);
    assert.throws(() => parse(withTokens(4097)), {
      message: '--clients: clients: expected at most 4096 tokens',
    });
  });

  it('must name a key file for each client if there is no --api-key', () => {
    assert.equal(parse(one({ apiKey: '@k' }), true).length, 1);
    assert.throws(
      () => parse(one({}), true),
      /clients\[0\]\.apiKey: expected a key file, since there is no --api-key/,
    );
  });

  it('may have the content of the example in docs/team.md', () => {
    const page = readFileSync(join(import.meta.dirname, '../../docs/team.md'), 'utf8');
    const example = /<!-- file: clients.json -->\s*```json\n([^`]*)```/.exec(page)?.[1] ?? '';
    const names = parse(example).map(({ name }) => name);
    assert.deepEqual(names, ['ann', 'bob', 'search-service']);
  });

  it('has a JSON schema with the same members and endpoints', () => {
    const path = join(import.meta.dirname, '../../docs/clients-file.schema.json');
    const { $defs, properties: ofFile } = JSON.parse(readFileSync(path, 'utf8'));
    const { properties } = $defs.client;
    const { enum: endpoints } = properties.endpoints.items as { enum: string[] };
    const own = { name: 'a', tokens: [DIGEST], apiKey: '@k' };
    const defaults = {
      expires: '2027-01-31T00:00:00Z',
      models: ['*'],
      endpoints,
      cacheSalt: 'own',
      ...LIMITS,
    };
    assert.deepEqual(Object.keys(properties).toSorted(), Object.keys({ ...own, ...defaults }).toSorted());
    assert.deepEqual(Object.keys(ofFile.defaults.properties).toSorted(), Object.keys(defaults).toSorted());
    assert.deepEqual(parse({ defaults, clients: [own] })[0]?.endpoints, endpoints);
    assert.throws(
      () => parse(one({ endpoints: ['x'] })),
      new RegExp(`expected one of ${endpoints.join(', ')}$`),
    );
  });
});
