/** `privatemode-proxy clients new NAME`: makes the token of a client, and the line for the file of --clients. */
import { createHash, randomBytes } from 'node:crypto';
import { TOKEN_PREFIX } from '../clients/clients-file.ts';
import { helpPage, section } from '../config/help.ts';
import { invalid } from '../config/values.ts';
import { CLIENT_NAME } from '../limits/limits.ts';
import type { Asked, Command } from './command.ts';

const TOKEN_BYTES = 32;

/** A fresh token of 256 random bits, and its SHA-256 in lower-case hex. */
export function newToken(): { readonly token: string; readonly digest: string } {
  const token = `${TOKEN_PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`;
  return { token, digest: createHash('sha256').update(token).digest('hex') };
}

export const CLIENTS: Command = { flags: [], words: ['new', 'NAME'], help: renderHelp, run: printToken };

/** Gives the exit code. Throws config_invalid. */
function printToken({ words: [, name = ''], io: { stdout } }: Asked): number {
  if (!CLIENT_NAME.test(name))
    throw invalid('NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit');
  const { token, digest } = newToken();
  stdout.write(
    [
      `The token of ${name}, which is shown this once and stored nowhere:`,
      '',
      `  ${token}`,
      '',
      'The entry for "clients" in the file of --clients (a second token of a client: only the digest, beside the first):',
      '',
      `  ${JSON.stringify({ name, tokens: [digest] })}`,
      '',
      '',
    ].join('\n'),
  );
  return 0;
}

function renderHelp(): string {
  return helpPage(
    `Makes a token for a client of the gateway (--clients). Prints it, and the entry to add to the
file, which holds its SHA-256 only. Changes no file. NAME: at most 64 letters, digits and
. _ @ -, beginning with a letter or digit.`,
    ['clients new NAME'],
    [section('Flags', [['  -h, --help', 'Print this help.']])],
  );
}
