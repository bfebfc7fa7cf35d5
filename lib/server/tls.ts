import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { PrivatemodeError } from '../errors.ts';
import { type FileWatch, watchFiles } from '../watch-files.ts';

export interface TlsFiles {
  readonly certPath: string;
  readonly keyPath: string;
}

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
}

/** Reads the pair and checks that the two belong together. Throws config_invalid naming the file. */
export function loadTls(files: TlsFiles): TlsMaterial {
  const cert = read(files.certPath, '--tls-cert-path');
  const key = read(files.keyPath, '--tls-key-path');
  try {
    // An empty text, as of a file that is just being written, would pass for a context without certificate or key.
    if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
      throw new Error('of different pairs');
    createSecureContext({ cert, key });
  } catch (cause) {
    const message = `the certificate in ${files.certPath} and the key in ${files.keyPath} cannot be used together`;
    throw new PrivatemodeError('config_invalid', message, { cause });
  }
  return { cert, key };
}

/** Follows the pair, looking every 10 s: `changed` gets a new one that can be used, `failed` why a new one cannot be. */
export const watchTls = (
  files: TlsFiles,
  known: TlsMaterial,
  on: Pick<Parameters<typeof watchFiles<TlsMaterial>>[0], 'changed' | 'failed'>,
): FileWatch => watchFiles({ known, read: () => loadTls(files), interval: 10_000, ...on });

function read(path: string, flag: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? 'unreadable';
    throw new PrivatemodeError('config_invalid', `cannot read ${flag} ${path}: ${reason}`, { cause });
  }
}
