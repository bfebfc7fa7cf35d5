import assert from 'node:assert/strict';
import { type Config, type ParsedConfig, parseConfig } from '../../../lib/config/config.ts';
import { PrivatemodeError } from '../../../lib/errors.ts';

/** parseConfig over files that exist in the test only. */
export function parsed(
  argv: readonly string[],
  files: Readonly<Record<string, string | Uint8Array>> = {},
  env: Readonly<Record<string, string>> = {},
): ParsedConfig {
  return parseConfig(argv, env, (path) => {
    const content = Object.hasOwn(files, path) ? files[path] : undefined;
    if (content === undefined)
      throw Object.assign(new Error(`ENOENT: no such file, open '${path}'`), { code: 'ENOENT' });
    return Buffer.from(content as string);
  });
}

export const configOf = (...argv: string[]): Config => parsed(argv).config;

/** Asserts a typed error with that code whose text contains all the words, and returns the text. */
export function refused(
  action: () => unknown,
  words: readonly (string | RegExp)[],
  code = 'config_invalid',
): string {
  try {
    action();
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError, `not a typed error: ${thrown}`);
    assert.equal(thrown.code, code);
    for (const word of words) {
      const found: boolean =
        typeof word === 'string' ? thrown.message.includes(word) : word.test(thrown.message);
      assert.ok(found, `${JSON.stringify(thrown.message)} lacks ${word}`);
    }
    return thrown.message;
  }
  return assert.fail('was accepted');
}
