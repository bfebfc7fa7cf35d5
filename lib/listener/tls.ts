/**
 * Reads the TLS certificate of the listener, its key and the CAs of client certificates, checks them, and
 * follows their files.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable } from '../files/path-refusal.ts';
import { type FileWatch, readSmallSync, watchFiles } from '../watch-files.ts';

export interface TlsFiles {
  readonly certPath: string;
  readonly keyPath: string;
}

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
}

type Follower<T> = Pick<Parameters<typeof watchFiles<T>>[0], 'changed' | 'failed' | 'recovered' | 'clock'>;

/** CA certificates, each in PEM. */
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
  // createSecureContext would accept an empty text, as of a file that is just being written, and make a
  // context without certificate or key.
  const [, fault = ''] = NO_CERTIFICATE.find(([form]) => form.test(cert)) ?? [];
  const certificate = orRefuse(() => new X509Certificate(cert), `the first holds ${fault}`);
  const privateKey = orRefuse(
    () => createPrivateKey(key),
    'the second holds no key in PEM, or one with a passphrase; openssl pkey -in KEY -out NEW writes one without',
  );
  orRefuse(() => {
    if (!certificate.checkPrivateKey(privateKey)) throw new Error('of different pairs');
  }, 'the key belongs to another certificate; name the two that were made together');
  orRefuse(() => createSecureContext({ cert, key }), 'TLS does not accept them');
  return { cert, key };
}

const CONVERT = 'openssl x509 -inform der -in FILE -out NEW converts one from DER';
/** What the message says about a file that holds no certificate, by the form of its text. */
const NO_CERTIFICATE: readonly (readonly [form: RegExp, fault: string])[] = [
  [/ PRIVATE KEY-----/, 'a key, so swap them'],
  [/ CERTIFICATE REQUEST-----/, 'a certificate request: name the certificate that your CA made of it'],
  [/^/, `no certificate in PEM; ${CONVERT}`],
];

/**
 * Reads the pair every 10 s. `changed` gets a new pair that can be used, `failed` the reason why one cannot
 * be. `recovered` is called when a pair can be used again.
 */
export const watchTls = (files: TlsFiles, known: TlsMaterial, on: Follower<TlsMaterial>): FileWatch =>
  watchFiles({ known, read: () => loadTls(files), interval: on.clock.times.certificateLook, ...on });

/**
 * Reads the CAs that certificates of clients must come from (--tls-client-ca): one or more CA certificates,
 * each with its issuers up to a root. The file holds nothing else in PEM. Throws config_invalid naming the
 * file.
 */
export function loadClientCas(path: string): ClientCas {
  const text = read(path, '--tls-client-ca');
  const refuse = (what: string, cause?: unknown): never => {
    throw new PrivatemodeError('config_invalid', `--tls-client-ca ${path} ${what}`, { cause });
  };
  // OpenSSL would stop at the first block that it cannot read, without an error.
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length === 0) refuse(`holds no certificate in PEM; ${CONVERT}`);
  if (blocks.length !== text.match(/-----BEGIN /g)?.length)
    refuse('holds something other than complete certificates in PEM; leave only those of the CAs');
  let certificates: X509Certificate[] = [];
  try {
    certificates = blocks.map((block) => new X509Certificate(block));
    createSecureContext({ ca: blocks });
  } catch (cause) {
    refuse('holds a certificate that cannot be read', cause);
  }
  // If the certificate of a client were trusted as a CA, it would vouch for itself.
  if (!certificates.every(({ ca }) => ca))
    refuse('holds a certificate that does not belong to a CA; name those of the CAs that sign for clients');
  // OpenSSL follows each chain up to a root, so each issuer must be in the file.
  if (!certificates.every((each) => certificates.some((issuer) => isIssuedBy(each, issuer))))
    refuse('holds a CA without its issuer: add the certificates above it, up to the root');
  return blocks;
}

const isIssuedBy = (certificate: X509Certificate, issuer: X509Certificate): boolean =>
  certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);

/** Reads the CAs every 10 s, with the same callbacks as `watchTls`. */
export const watchClientCas = (path: string, known: ClientCas, on: Follower<ClientCas>): FileWatch =>
  watchFiles({ known, read: () => loadClientCas(path), interval: on.clock.times.certificateLook, ...on });

function read(path: string, flag: string): string {
  try {
    return readSmallSync(path).toString();
  } catch (cause) {
    throw fileUnreadable(`the file ${JSON.stringify(path)} of ${flag}`, path, cause);
  }
}
