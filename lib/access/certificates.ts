/**
 * The certificates that clients showed (--tls-client-ca): what OpenSSL found about each, and the names in it.
 */
import type { X509Certificate } from 'node:crypto';
import { EXTENSION_OID, extensionValue, takeExtensions } from '../attestation/x509/extensions.ts';
import { commonName, readName } from '../attestation/x509/name.ts';
import { contextTag, DerCursor, parseDer, TAG } from '../crypto/der.ts';
import { CLIENT_NAME } from './clients-file.ts';

/** Why a certificate identifies no client: the message for the owner of the certificate. */
export const CERTIFICATE_PROBLEMS = {
  expired: 'the client certificate, or a CA above it, has expired',
  early: 'the client certificate, or a CA above it, is not valid yet',
  purpose: 'the client certificate is not meant for clients (its key usage says so)',
  foreign: 'the client certificate does not come from a CA that this gateway trusts',
  nameless: 'the client certificate names no client of this gateway',
  ambiguous: 'the client certificate names more than one client of this gateway',
  withdrawn: 'the CAs of this gateway have changed since this connection began; connect again',
} as const;

export type CertificateProblem = keyof typeof CERTIFICATE_PROBLEMS;

/** What the proxy knows about the certificate of a connection. */
export interface ClientCertificate {
  readonly problem: CertificateProblem | undefined;
  /** The names in the certificate that a client can have, each once. Empty if there is a problem. */
  readonly names: readonly string[];
  /** ms since 1970; valid up to and including this moment. */
  readonly notAfter: number;
}

/** What a TLS socket says about the other side after its handshake. */
interface Handshake {
  /**
   * Whether the chain ends in a CA of --tls-client-ca, and every certificate of it is valid now and meant for
   * this.
   */
  readonly authorized: boolean;
  /** If not authorized: OpenSSL's name for the reason, as `CERT_HAS_EXPIRED`. */
  readonly authorizationError: unknown;
  getPeerX509Certificate(): X509Certificate | undefined;
}

const PROBLEM_OF: Readonly<Record<string, CertificateProblem>> = {
  CERT_HAS_EXPIRED: 'expired',
  CERT_NOT_YET_VALID: 'early',
  INVALID_PURPOSE: 'purpose',
};

const withProblem = (problem: CertificateProblem): ClientCertificate =>
  Object.freeze({ problem, names: [], notAfter: 0 });
const WITHDRAWN = withProblem('withdrawn');

export type ClientCertificates = ReturnType<typeof createCertificates>;

/** Remembers the certificate of each connection, which it reads once, after the handshake. */
export function createCertificates() {
  const known = new WeakMap<object, ClientCertificate>();
  return {
    /** Reads the certificate, if there is one, of a connection whose handshake is done. */
    take(socket: Handshake): void {
      const certificate = socket.getPeerX509Certificate();
      if (certificate !== undefined) known.set(socket, read(socket, certificate));
    },
    /** From now on the certificate of this connection identifies no client. */
    withdraw(socket: object): void {
      if (known.has(socket)) known.set(socket, WITHDRAWN);
    },
    /** Undefined: the connection showed no certificate. */
    of: (socket: object): ClientCertificate | undefined => known.get(socket),
  };
}

/**
 * Reads what the proxy needs of a certificate. Reads nothing in one that OpenSSL refused, because anybody may
 * have made it.
 */
function read(
  { authorized, authorizationError }: Handshake,
  { raw, validToDate }: X509Certificate,
): ClientCertificate {
  if (!authorized) return withProblem(PROBLEM_OF[String(authorizationError)] ?? 'foreign');
  const names = [...new Set(certificateNames(raw))].filter((name) => CLIENT_NAME.test(name));
  return { problem: undefined, names, notAfter: validToDate.getTime() };
}

/**
 * The names that a certificate (DER) gives its owner: the alternative names of the kinds DNS, email and URI,
 * in this order. Only if it has no alternative names of any kind, its one common name. Reads the DER and not
 * the texts that Node makes of the names: there, quotes and separators in a name could make two names of it.
 * Returns none if the certificate cannot be read.
 */
export function certificateNames(der: Uint8Array): readonly string[] {
  try {
    const cursor = new DerCursor(new DerCursor(parseDer(der)).take(TAG.sequence));
    cursor.takeIf(contextTag(0, true)); // version
    cursor.take(TAG.integer); // serial number
    for (const _ of ['algorithm', 'issuer', 'validity']) cursor.take(TAG.sequence);
    const subject = cursor.take(TAG.sequence);
    cursor.take(TAG.sequence); // public key
    const alternative = extensionValue(takeExtensions(cursor, 3), EXTENSION_OID.subjectAltName);
    if (alternative !== undefined) return alternativeNames(alternative);
    const name = commonName(readName(subject));
    return name === undefined ? [] : [name];
  } catch {
    return [];
  }
}

/** DNS, email, URI (RFC 5280 4.2.1.6). */
const NAME_KINDS = [2, 1, 6].map((kind) => contextTag(kind, false));

/**
 * Reads the names as Latin-1, in which a byte beyond ASCII becomes a character that no name of a client has.
 */
function alternativeNames(value: Uint8Array): readonly string[] {
  const names = [...new DerCursor(parseDer(value)).rest()];
  return NAME_KINDS.flatMap((kind) =>
    names.filter(({ tag }) => tag === kind).map(({ content }) => Buffer.from(content).toString('latin1')),
  );
}
