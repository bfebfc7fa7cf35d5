import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { fileUnreadable, PrivatemodeError } from '../errors.ts';
import { type FileWatch, watchFiles } from '../watch-files.ts';

export interface TlsFiles {
  readonly certPath: string;
  readonly keyPath: string;
}

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
}

type Follower<T> = Pick<Parameters<typeof watchFiles<T>>[0], 'changed' | 'failed' | 'recovered'>;

/** Certificates of CAs, PEM each. */
export type ClientCas = readonly string[];

/** Reads the pair and checks that the two belong together. Throws config_invalid naming the file. */
export function loadTls(files: TlsFiles): TlsMaterial {
  const cert = read(files.certPath, '--tls-cert-path');
  const key = read(files.keyPath, '--tls-key-path');
  const orRefuse = <T>(make: () => T, fault: string): T => {
    try {
      return make();
    } catch (cause) {
      const message = `the certificate in ${files.certPath} and the key in ${files.keyPath} cannot be used together: ${fault}`;
      throw new PrivatemodeError('config_invalid', message, { cause });
    }
  };
  // An empty text, as of a file that is just being written, would pass for a context without certificate or key.
  const isSwapped = cert.includes(' PRIVATE KEY-----');
  const certificate = orRefuse(
    () => new X509Certificate(cert),
    isSwapped ? 'the first holds a key, so swap them' : 'the first holds no certificate (PEM)',
  );
  const privateKey = orRefuse(
    () => createPrivateKey(key),
    'the second holds no key (PEM, without a passphrase)',
  );
  orRefuse(() => {
    if (!certificate.checkPrivateKey(privateKey)) throw new Error('of different pairs');
  }, 'the key belongs to another certificate');
  orRefuse(() => createSecureContext({ cert, key }), 'TLS does not accept them');
  return { cert, key };
}

/** Follows the pair, looking every 10 s: `changed` gets a new one that can be used, `failed` why a new one cannot be, until `recovered`. */
export const watchTls = (files: TlsFiles, known: TlsMaterial, on: Follower<TlsMaterial>): FileWatch =>
  watchFiles({ known, read: () => loadTls(files), interval: 10_000, ...on });

/**
 * Reads the CAs that certificates of clients must come from (--tls-client-ca): one or more CA certificates, each with its issuer down to
 * a root, and nothing else in PEM. Throws config_invalid naming the file.
 */
export function loadClientCas(path: string): ClientCas {
  const text = read(path, '--tls-client-ca');
  const refuse = (what: string, cause?: unknown): never => {
    throw new PrivatemodeError('config_invalid', `--tls-client-ca ${path} ${what}`, { cause });
  };
  // OpenSSL would stop at the first block that it cannot read, and say nothing.
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length === 0) refuse('holds no certificate (PEM)');
  if (blocks.length !== text.match(/-----BEGIN /g)?.length)
    refuse('holds something other than complete certificates (PEM)');
  let certificates: X509Certificate[] = [];
  try {
    certificates = blocks.map((block) => new X509Certificate(block));
    createSecureContext({ ca: blocks });
  } catch (cause) {
    refuse('holds a certificate that cannot be read', cause);
  }
  // Trusted as a CA, the certificate of a client would vouch for itself.
  if (!certificates.every(({ ca }) => ca)) refuse('holds a certificate that does not belong to a CA');
  // OpenSSL follows each chain to a root.
  if (!certificates.every((each) => certificates.some((issuer) => isIssuedBy(each, issuer))))
    refuse('holds a CA without its issuer: add the certificates above it, up to the root');
  return blocks;
}

const isIssuedBy = (certificate: X509Certificate, issuer: X509Certificate): boolean =>
  certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);

/** Follows the CAs like the pair. */
export const watchClientCas = (path: string, known: ClientCas, on: Follower<ClientCas>): FileWatch =>
  watchFiles({ known, read: () => loadClientCas(path), interval: 10_000, ...on });

function read(path: string, flag: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw fileUnreadable(`the file ${JSON.stringify(path)} of ${flag}`, path, cause);
  }
}
