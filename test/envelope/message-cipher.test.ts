import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RequestCipher } from '../../lib/envelope/message-cipher.ts';
import { countingIvs, EXCHANGE, fixedCipher, hex } from '../support/remote/exchange-fixture.ts';
import { literalOpen, literalSeal } from '../support/remote/literal-envelope.ts';
import { sealedMessages } from '../support/remote/sealing.ts';
import primitive from '../vectors/inference/message-primitive.json' with { type: 'json' };

const { vectors, mustFail, upstreamAccepts } = primitive;

const seal = (cipher: RequestCipher, plaintext: Uint8Array): string => sealedMessages(cipher, plaintext)[0]!;

/** Opens messages in one go. */
const openTogether = (cipher: RequestCipher, messages: readonly string[]): Buffer[] =>
  cipher
    .open(messages.map((message) => message.replace(/^"(.*)"$/, '$1')))
    .map((text) => Buffer.from(text, 'latin1'));

const open = (cipher: RequestCipher, message: string): Buffer => openTogether(cipher, [message])[0]!;

describe('a request cipher, by the vectors', () => {
  it('opens a message with any id that a JSON string holds as it stands', () => {
    const withId = (id: string) => literalSeal({ ...EXCHANGE, id }, 0, Buffer.alloc(12), Buffer.from('text'));
    for (const id of ['', 'x', EXCHANGE.id])
      assert.equal(open(fixedCipher(), withId(id)).toString(), 'text', id);
    for (const id of ['\\', '\n', '\u00e4', '\x7f']) {
      assert.throws(() => fixedCipher().open([withId(id).slice(1, -1)]), { code: 'response_malformed' });
    }
  });

  for (const { name, plaintextHex, sequence, ivHex, message } of vectors) {
    it(`seals and opens: ${name}`, () => {
      const cipher = fixedCipher({ sequence, ivs: () => hex(ivHex) });
      assert.equal(seal(cipher, hex(plaintextHex)), message);
      assert.equal(cipher.sealedLength(plaintextHex.length / 2), message.length);
      assert.equal(open(fixedCipher({ sequence }), message).toString('hex'), plaintextHex);
    });
  }

  for (const { name, sequence, requestNonceHex, message } of mustFail) {
    it(`refuses: ${name}`, () => {
      const nonce = requestNonceHex === undefined ? EXCHANGE.nonce : hex(requestNonceHex);
      const refused = { name: 'PrivatemodeError', code: /^response_(malformed|not_authentic)$/ };
      assert.throws(() => open(fixedCipher({ sequence, nonce }), message), refused);
    });
  }

  for (const { name, sequence, message, plaintextHex } of upstreamAccepts) {
    it(`accepts: ${name}`, () => {
      assert.equal(open(fixedCipher({ sequence }), message).toString('hex'), plaintextHex);
    });
  }
});

it('a request cipher says that it has opened a message only if one has authenticated', () => {
  const { message } = vectors.find(({ name }) => name === 'json string')!;
  const cipher = fixedCipher();
  cipher.open([]);
  assert.equal(cipher.hasOpened, false);
  open(cipher, message);
  assert.equal(cipher.hasOpened, true);
  const deceived = fixedCipher();
  assert.throws(() =>
    open(
      deceived,
      message.replace(/.(?="$)/, (last) => (last === '0' ? '1' : '0')),
    ),
  );
  assert.deepEqual([deceived.hasReceived, deceived.hasOpened], [true, false]);
});

describe('a request cipher refuses as malformed', () => {
  const good = vectors.find(({ name }) => name === 'json string')!.message;
  const [id, nonce, iv, body] = good.slice(1, -1).split(':') as [string, string, string, string];
  const cases: Record<string, string> = {
    'three parts': `${id}:${nonce}:${iv}`,
    'less than a tag': `${id}:${nonce}:${iv}:${body.slice(0, 30)}`,
    'text behind it': `${good} `,
    // Whoever finds a message by its quotes relies on these.
    'a line end in the id': good.replace(id, `${id.slice(0, 9)}\n${id.slice(9)}`),
    'a control character in the id': good.replace(id, `\x1f${id}`),
  };
  for (const [name, message] of Object.entries(cases)) {
    it(`a message with ${name}`, () => {
      assert.throws(() => open(fixedCipher(), message), { code: 'response_malformed' });
    });
  }

  it('a message with one changed character of iv or ciphertext, or else as not authentic', () => {
    const start = good.indexOf(iv);
    for (let i = start; i < good.length - 1; i++) {
      for (const other of ['0', '1', 'x', ':']) {
        if (good[i] === other) continue;
        const changed = good.slice(0, i) + other + good.slice(i + 1);
        assert.throws(() => open(fixedCipher(), changed), { name: 'PrivatemodeError' }, `at ${i}`);
      }
    }
  });
});

describe('the messages of a request', () => {
  // Short ones are opened together, long ones alone.
  for (const size of [0, 20, 5000]) {
    it(`are refused when they come back in the response, hex in upper case or not: ${size} bytes`, () => {
      for (const number of [0, 1, 15, 16, 39]) {
        for (const spelled of [(hex: string) => hex, (hex: string) => hex.toUpperCase()]) {
          const cipher = fixedCipher({ ivs: countingIvs() });
          const own = Array.from({ length: 40 }, () => seal(cipher, Buffer.alloc(size, 0x20)))[number]!;
          for (let i = 0; i < number; i++) {
            const answer = literalSeal(EXCHANGE, i, Buffer.alloc(12, 0xe0), Buffer.from(`${i}`));
            assert.equal(open(cipher, answer).toString(), `${i}`);
          }
          const [id, nonce, ...rest] = own.slice(1, -1).split(':');
          assert.throws(() => open(cipher, [id, nonce, ...rest.map(spelled)].join(':')), {
            code: 'response_not_authentic',
            message: /its own request/,
          });
        }
      }
    });
  }
});

describe('a request cipher', () => {
  const response = (sequence: number, text: string): string =>
    literalSeal(EXCHANGE, sequence, Buffer.alloc(12, 0xf0 + sequence), Buffer.from(text));

  it('numbers the messages of request and response separately, each from 0', () => {
    const cipher = fixedCipher({ ivs: countingIvs() });
    for (let i = 0; i < 3; i++) {
      assert.equal(literalOpen(EXCHANGE, i, seal(cipher, Buffer.from(`q${i}`))).toString(), `q${i}`);
    }
    for (let i = 0; i < 3; i++) assert.equal(open(cipher, response(i, `a${i}`)).toString(), `a${i}`);
  });

  it('seals plaintexts of every size, short and long, as the literal envelope does', () => {
    const plaintexts = [0, 1, 15, 16, 511, 512, 513, 5_000].map((size) => Buffer.alloc(size, 'x'));
    const ivs = countingIvs();
    assert.deepEqual(
      sealedMessages(fixedCipher({ ivs: countingIvs() }), ...plaintexts),
      plaintexts.map((each, sequence) => literalSeal(EXCHANGE, sequence, ivs(), each)),
    );
  });

  it('opens messages together only in the order of their numbers', () => {
    const messages = [0, 1, 2].map((sequence) =>
      literalSeal(EXCHANGE, sequence, Buffer.alloc(12), hex('61')),
    );
    assert.equal(openTogether(fixedCipher(), messages).join(''), 'aaa');
    assert.throws(() => openTogether(fixedCipher(), messages.toReversed()), {
      code: 'response_not_authentic',
    });
  });

  it('refuses a replayed message, and one after a skipped one', () => {
    const cipher = fixedCipher();
    open(cipher, response(0, 'a'));
    for (const [each, sequence] of [
      [cipher, 0],
      [fixedCipher(), 1],
    ] as const)
      assert.throws(() => open(each, response(sequence, 'a')), { code: 'response_not_authentic' });
  });

  it('refuses everything after a failure', () => {
    const noHex = response(0, 'a').replace(/.."$/, 'gg"');
    for (const [bad, next] of [
      [response(1, 'b'), 1],
      [noHex, 1],
      ['no message', 0],
    ] as const) {
      const cipher = fixedCipher();
      assert.throws(() => open(cipher, bad));
      assert.throws(() => open(cipher, response(next, 'a')), { code: /^response_/ });
    }
  });

  it('seals nothing after the response began', () => {
    const cipher = fixedCipher();
    open(cipher, response(0, 'a'));
    assert.throws(() => seal(cipher, Buffer.from('q')), { code: 'internal' });
  });

  it('stops at 2^32 messages', () => {
    const cipher = fixedCipher({ sequence: 2 ** 32 - 1 });
    seal(cipher, Buffer.from('q'));
    assert.throws(() => seal(cipher, Buffer.from('q')), { code: 'internal' });
  });

  it('draws a nonce per cipher and an iv per message, none twice', () => {
    const seen = new Set<string>();
    const nonces = new Set<string>();
    for (let i = 0; i < 50; i++) {
      const cipher = new RequestCipher(EXCHANGE);
      for (let j = 0; j < 30; j++) {
        const [, nonce, iv] = seal(cipher, Buffer.alloc(0)).split(':') as [string, string, string];
        nonces.add(nonce);
        seen.add(iv);
      }
    }
    assert.equal(nonces.size, 50);
    assert.equal(seen.size, 1500);
  });
});
