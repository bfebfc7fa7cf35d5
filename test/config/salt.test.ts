import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parsed, refused } from '../support/doors/config.ts';

const bytes = (count: number): string => 'x'.repeat(count);
const FORBIDDEN = 'contains @, /, \\ or NUL';
const shared = (salt: string, files: Readonly<Record<string, string | Uint8Array>> = {}) =>
  parsed(['--disable-prompt-cache=false', `--prompt-cache-salt=${salt}`], files).config.promptCacheSalt;

describe('prompt cache salts', () => {
  const accepted: [name: string, salt: string][] = [
    ['32 bytes', bytes(32)],
    ['128 characters', bytes(128)],
    ['32 bytes in 8 characters', '\u{1F600}'.repeat(8)],
    ['128 characters in 512 bytes', '\u{1F600}'.repeat(128)],
    ['blanks and punctuation', '  a salt, with blanks: and +=~!?  '],
  ];
  for (const [name, salt] of accepted)
    it(`a literal of ${name} is used unchanged`, () => assert.equal(shared(salt), salt));

  const rejected: [name: string, salt: string, words: string[]][] = [
    ['31 bytes', bytes(31), ['31 bytes', 'at least 32']],
    ['129 characters', bytes(129), ['129 characters', 'at most 128']],
    ['129 characters beyond the basic plane', '\u{1F600}'.repeat(129), ['129 characters']],
    ['an @', `${bytes(32)}@`, [FORBIDDEN]],
    ['a /', `${bytes(32)}/`, [FORBIDDEN, 'openssl rand -hex 32']],
    ['a \\', `${bytes(32)}\\`, [FORBIDDEN]],
    ['a NUL', `${bytes(32)}\0`, [FORBIDDEN]],
    ['half a surrogate pair', `${bytes(32)}\ud800`, ['not valid UTF-8']],
    ['what Node made of bytes that are no UTF-8', `${bytes(32)}\ufffd`, ['not valid UTF-8']],
  ];
  for (const [name, salt, words] of rejected) {
    it(`a literal with ${name} is refused, and the error does not quote it`, () => {
      const message = refused(() => shared(salt), ['--prompt-cache-salt', ...words]);
      assert.ok(!message.includes('xxxx'), message);
    });
  }

  const files: [name: string, content: string | Uint8Array, salt: string][] = [
    ['unchanged', bytes(40), bytes(40)],
    ['without white space around it', `\t \r\n\u00a0\u2003${bytes(32)}\u0085\u3000\n\n`, bytes(32)],
    ['with white space inside it', `${bytes(20)} ${bytes(20)}`, `${bytes(20)} ${bytes(20)}`],
    ['with its byte order mark, as the reference does', `\ufeff${bytes(32)}`, `\ufeff${bytes(32)}`],
    ['with U+FFFD if the file has it', `${bytes(32)}\ufffd`, `${bytes(32)}\ufffd`],
  ];
  for (const [name, content, salt] of files) {
    it(`the salt in a file is used ${name}`, () => assert.equal(shared('@salt', { salt: content }), salt));
  }

  for (const [name, content, words] of [
    ['that is too short after trimming', Buffer.from(` ${bytes(31)}\n`), '31 bytes'],
    ['that is no UTF-8', Buffer.from(`${bytes(32)}\xc3\x28`, 'latin1'), 'not valid UTF-8'],
  ] as const) {
    it(`a file ${name} is refused, and the error names the file`, () =>
      void refused(
        () => shared('@salt', { salt: content }),
        ['salt file "salt"', '--prompt-cache-salt', words],
      ));
  }

  it('a file that cannot be read is refused, and the error names the file', () =>
    void refused(() => shared('@gone'), ['failed to read', '"gone"', 'ENOENT']));
});
