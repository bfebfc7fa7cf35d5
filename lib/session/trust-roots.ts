import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TrustRoots } from '../attestation/verify.ts';
import { type Certificate, decodePem, parseCertificate } from '../attestation/x509/certificate.ts';
import { commonName } from '../attestation/x509/name.ts';
import { PrivatemodeError } from '../errors.ts';

const PRODUCTION_DOMAINS = ['privatemode.ai', 'confidential.cloud'];

/**
 * Whether `host` (with or without a port) belongs to the real service: privatemode.ai, its manifest CDN's
 * confidential.cloud, and everything below them. Spelling does not matter: case, trailing dots, port, percent-encoding
 * and full-width forms are normalised away as URLs do it. What cannot be read as a host counts as production.
 */
export function isProductionHost(host: string): boolean {
  const url = URL.parse(`https://${host.trim()}`);
  if (url === null || url.hostname === '') return true;
  const name = url.hostname.replace(/\.+$/, '');
  return PRODUCTION_DOMAINS.some((domain) => name === domain || name.endsWith(`.${domain}`));
}

/** The certificates that a directory of roots may hold, by the common name of their subject. */
const SLOTS = ['ARK-Milan', 'SEV-Milan', 'ARK-Genoa', 'SEV-Genoa', 'Intel SGX Root CA'] as const;
type Slot = (typeof SLOTS)[number];

/**
 * Hardware roots other than the vendors', for simulators only (design decision 8): every `*.pem` of `directory`, told
 * apart by subject CN. Throws unsafe_roots_refused if one of `hosts`, all that this process would attest or take
 * manifests from, is a production host; config_invalid for certificates that are unreadable, unknown, twice there or
 * without their counterpart.
 */
export function loadUnsafeTrustRoots(directory: string, hosts: readonly string[]): TrustRoots {
  const production = hosts.find(isProductionHost);
  if (production !== undefined) {
    throw new PrivatemodeError(
      'unsafe_roots_refused',
      `--unsafe-trust-roots is refused for ${production}: it would let anybody pass for the service`,
    );
  }
  return readTrustRoots(directory, { flag: '--unsafe-trust-roots', others: 'refused' });
}

/**
 * The hardware roots in the `*.pem` files of a directory, told apart by subject CN; what to do with `others` than
 * hardware roots is the caller's choice. Throws config_invalid, naming `flag`, for certificates that are unreadable,
 * twice there or without their counterpart, and where there are none.
 */
export function readTrustRoots(
  directory: string,
  { flag, others }: { readonly flag: string; readonly others: 'refused' | 'ignored' },
): TrustRoots {
  const invalid: Complaint = (words, cause) =>
    new PrivatemodeError('config_invalid', `${flag}: ${words}`, { cause });
  const found = new Map<Slot, string>();
  for (const { file, pem, certificate } of readCertificates(directory, invalid)) {
    const name = commonName(certificate.subject) ?? '';
    const slot = SLOTS.find((known) => known === name);
    if (slot === undefined && others === 'ignored') continue;
    if (slot === undefined) throw invalid(`${file}: "${printable(name)}" is not one of ${SLOTS.join(', ')}`);
    if (found.has(slot)) throw invalid(`${file}: a second "${slot}"`);
    found.set(slot, pem);
  }
  if (found.size === 0) throw invalid(`${directory} holds no certificate in a .pem file`);
  const snp: { -readonly [P in keyof TrustRoots['snp']]: TrustRoots['snp'][P] } = {};
  for (const product of ['Milan', 'Genoa'] as const) {
    const [ark, ask] = [found.get(`ARK-${product}`), found.get(`SEV-${product}`)];
    if (ark !== undefined && ask !== undefined) snp[product] = { ark, ask };
    else if (ark !== ask) throw invalid(`ARK-${product} and SEV-${product} are only of use together`);
  }
  const root = found.get('Intel SGX Root CA');
  return { snp, tdx: root === undefined ? undefined : { root } };
}

interface Found {
  readonly file: string;
  readonly pem: string;
  readonly certificate: Certificate;
}

type Complaint = (words: string, cause?: unknown) => PrivatemodeError;

function readCertificates(directory: string, invalid: Complaint): Found[] {
  let names: string[];
  try {
    names = readdirSync(directory).filter((name) => name.endsWith('.pem'));
  } catch (cause) {
    throw invalid(`${directory} cannot be read`, cause);
  }
  return names.sort().flatMap((name) => {
    const file = join(directory, name);
    try {
      return decodePem(readFileSync(file, 'latin1')).map(({ label, der }) => {
        if (label !== 'CERTIFICATE') throw new TypeError(`a ${label}`);
        return { file, pem: toPem(der), certificate: parseCertificate(der) };
      });
    } catch (cause) {
      throw invalid(`${file} is not a PEM certificate`, cause);
    }
  });
}

function toPem(der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

const printable = (text: string): string => text.replace(/[^\x20-\x7e]+/g, '?').slice(0, 100);
