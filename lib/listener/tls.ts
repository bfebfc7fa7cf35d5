/** The files of TLS: reads and follows the certificate, its key and the CAs of client certificates. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmallSync, watchFiles } from '../watch-files.ts';

interface TlsFiles {
  readonly certPath: string;
  readonly keyPath: string;
}

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
}

/** CA certificates, each in PEM. */
export type ClientCas = readonly string[];

/** The complete certificates of a PEM text. */
export const CERTIFICATES = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** Reads the pair and checks that the two belong together. Throws config_invalid naming the files. */
export function loadTls({ certPath, keyPath }: TlsFiles): TlsMaterial {
  const cert = read(certPath, '--tls-cert-path');
  const key = read(keyPath, '--tls-key-path');
  const what = `the certificate in ${certPath} and its key in ${keyPath} (in PEM, and without a passphrase)`;
  demandUsable(what, () => {
    // createSecureContext would accept an empty text, as of a file that is just being written.
    if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
      throw new Error('the key belongs to another certificate');
    createSecureContext({ cert, key });
  });
  return { cert, key };
}

/**
 * Reads the CAs that certificates of clients must come from: one or more, each with its issuers up to a root.
 * Throws config_invalid naming the file.
 */
export function loadClientCas(path: string): ClientCas {
  const text = read(path, '--tls-client-ca');
  const blocks = text.match(CERTIFICATES) ?? [];
  demandUsable(`--tls-client-ca ${path}`, () => {
    // OpenSSL would stop at the first block that it cannot read, without an error.
    if (blocks.length === 0 || blocks.length !== text.match(/-----BEGIN /g)?.length)
      throw new Error('it has to hold complete certificates in PEM, those of CAs, and nothing else in PEM');
    const cas = blocks.map((block) => new X509Certificate(block));
    createSecureContext({ ca: blocks });
    // If the certificate of a client were trusted as a CA, it would vouch for itself.
    if (!cas.every(({ ca }) => ca))
      throw new Error(
        'it holds a certificate that does not belong to a CA; name those that sign for clients',
      );
    // OpenSSL follows each chain up to a root, so each issuer must be in the file.
    const hasIssuer = (each: X509Certificate): boolean =>
      cas.some((issuer) => each.checkIssued(issuer) && each.verify(issuer.publicKey));
    if (!cas.every(hasIssuer))
      throw new Error('it holds a CA without its issuer: add the certificates above it, up to the root');
  });
  return blocks;
}

function demandUsable(what: string, check: () => void): void {
  try {
    check();
  } catch (cause) {
    const message = `${what} cannot be used: ${(cause as Error).message}`;
    throw new PrivatemodeError('config_invalid', message, { cause });
  }
}

/** Reads the pair again and again, with the callbacks of `watchFiles`. */
export const watchTls = (files: TlsFiles, known: TlsMaterial, on: Follower<TlsMaterial>): FileWatch =>
  watchFiles({ known, read: () => loadTls(files), interval: on.clock.times.certificateLook, ...on });

/** The same for the CAs. */
export const watchClientCas = (path: string, known: ClientCas, on: Follower<ClientCas>): FileWatch =>
  watchFiles({ known, read: () => loadClientCas(path), interval: on.clock.times.certificateLook, ...on });

function read(path: string, flag: string): string {
  try {
    return readSmallSync(path).toString();
  } catch (cause) {
    throw fileUnreadable(`the file ${JSON.stringify(path)} of ${flag}`, path, cause);
  }
}
