import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { isProductionHost, PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { PRODUCT_NAMES, type Product } from '../attestation/snp/product.ts';
import type { TrustRoots } from '../attestation/verify.ts';
import { decodePem, parseCertificate } from '../attestation/x509/certificate.ts';
import { commonName } from '../attestation/x509/name.ts';
import { type ErrorCode, fileUnreadable, PrivatemodeError } from '../errors.ts';
import { printable } from '../text.ts';
import type { Config } from './config.ts';
import type { Environment } from './environment.ts';
import { orRefuse } from './files.ts';
import { invalid, isLoopback } from './values.ts';

const INTEL = 'Intel SGX Root CA';
/** The common names of the subjects that a directory of roots may hold. */
const NAMES = [...PRODUCT_NAMES.flatMap((product) => [`ARK-${product}`, `SEV-${product}`]), INTEL];

/**
 * The vendors' hardware roots, or those of --unsafe-trust-roots, which are for simulators only. Throws
 * unsafe_roots_refused if the API or the CDN of this configuration belongs to the real service, else as readTrustRoots.
 */
export function trustRoots(
  config: Pick<Config, 'unsafeTrustRoots' | 'apiEndpoint' | 'cdnBaseUrl' | 'manifestPath'>,
): TrustRoots {
  const { unsafeTrustRoots: directory, apiEndpoint, cdnBaseUrl, manifestPath } = config;
  if (directory === undefined) return PRODUCTION_ROOTS;
  const hosts = [apiEndpoint.host, ...(manifestPath === undefined ? [new URL(cdnBaseUrl).host] : [])];
  const production = hosts.find(belongsToService);
  if (production !== undefined) {
    throw new PrivatemodeError(
      'unsafe_roots_refused',
      `--unsafe-trust-roots is refused for ${production}: it would let anybody impersonate the service`,
      production === apiEndpoint.host ? {} : { remedy: OWN_MANIFEST },
    );
  }
  return readTrustRoots(directory, { flag: '--unsafe-trust-roots', others: 'refused' });
}

const OWN_MANIFEST =
  'The manifest would come from there (--cdn-base-url): name that of the simulator with --manifest-path, such as sim/manifest.json.';

/** How a simulator fails whose certificates, roots or manifest are not known here. */
const UNKNOWN_SIMULATOR: readonly ErrorCode[] = [
  'upstream_tls_untrusted',
  'attestation_failed',
  'manifest_mismatch',
  'manifest_unavailable',
];

/**
 * What was not given that a simulator on this machine needs, as a sentence, where it would fail with this code; undefined elsewhere. Flags
 * that --help leaves out are named here only.
 */
export function simulatorHint(
  code: ErrorCode,
  {
    apiEndpoint,
    unsafeTrustRoots,
    manifestPath,
  }: Pick<Config, 'apiEndpoint' | 'unsafeTrustRoots' | 'manifestPath'>,
  env: Environment,
): string | undefined {
  const missing = [
    unsafeTrustRoots === undefined && '--unsafe-trust-roots DIR/roots',
    manifestPath === undefined && '--manifest-path DIR/manifest.json',
    !env['SSL_CERT_FILE'] && 'SSL_CERT_FILE=DIR/ca.pem',
  ].filter((setting) => setting !== false);
  if (!isLoopback(apiEndpoint.host) || missing.length === 0 || !UNKNOWN_SIMULATOR.includes(code))
    return undefined;
  return `If the service is a simulator, add ${missing.join(', ')}, where DIR is the "dir" that it printed.`;
}

/** The error with that hint, if there is one. */
export function withSimulatorHint(
  error: PrivatemodeError,
  config: Parameters<typeof simulatorHint>[1],
  env: Environment,
): PrivatemodeError {
  const { code, message, remedy } = error;
  const hint = simulatorHint(code, config, env);
  if (hint === undefined) return error;
  return new PrivatemodeError(code, message, { cause: error, remedy: `${hint} Else: ${remedy}` });
}

/**
 * Whether `host` (with or without a port) is one of the real service, however it is spelled: a URL normalises case, port,
 * percent-encoding and full-width forms. What cannot be read as a host counts as one.
 */
function belongsToService(host: string): boolean {
  if (isIP(host) !== 0) return false; // an IPv6 address comes without brackets, and no URL can be read from that
  const url = URL.parse(`https://${host.trim()}`);
  return url === null || url.hostname === '' || isProductionHost(url.hostname);
}

/**
 * The hardware roots in the `*.pem` files of a directory, identified by subject CN; `others` says what happens to other
 * certificates. Throws config_invalid, naming `flag`, for certificates that are unreadable, there twice or without their
 * counterpart, and where there are none.
 */
export function readTrustRoots(
  directory: string,
  { flag, others }: { readonly flag: string; readonly others: 'refused' | 'ignored' },
): TrustRoots {
  const refuse: Refuse = (problem, cause) => invalid(`${flag}: ${problem}`, cause);
  const found = new Map<string, string>();
  for (const { file, pem, name } of readCertificates(directory, flag, refuse)) {
    const known = NAMES.includes(name);
    if (!known && others === 'refused')
      throw refuse(
        `${file}: "${printable(name, 100)}" is not one of ${NAMES.join(', ')}; name the directory that holds these alone, as roots of the simulator does`,
      );
    if (found.has(name)) throw refuse(`${file}: a second "${name}"`);
    if (known) found.set(name, pem);
  }
  if (found.size === 0) throw refuse(`${directory} holds no certificate in a .pem file`);
  const snp: Partial<Record<Product, { ark: string; ask: string }>> = {};
  for (const product of PRODUCT_NAMES) {
    const [ark, ask] = [found.get(`ARK-${product}`), found.get(`SEV-${product}`)];
    if (ark !== undefined && ask !== undefined) snp[product] = { ark, ask };
    else if (ark !== ask) throw refuse(`ARK-${product} and SEV-${product} must be given together`);
  }
  const root = found.get(INTEL);
  return { snp, tdx: root === undefined ? undefined : { root } };
}

type Refuse = (problem: string, cause?: unknown) => PrivatemodeError;

/** Every certificate of the directory, with the common name of its subject. */
function readCertificates(
  directory: string,
  flag: string,
  refuse: Refuse,
): { file: string; pem: string; name: string }[] {
  const names = orRefuse(
    () => readdirSync(directory),
    (cause) => fileUnreadable(`the directory ${JSON.stringify(directory)} of ${flag}`, directory, cause),
  );
  const files = names.filter((name) => name.endsWith('.pem')).sort();
  return files.flatMap((name) => {
    const file = join(directory, name);
    const read = () =>
      decodePem(readFileSync(file, 'latin1')).map(({ label, der }) => {
        if (label !== 'CERTIFICATE') throw new TypeError(`a ${label}`);
        const name = commonName(parseCertificate(der).subject) ?? '';
        return { file, pem: new X509Certificate(der).toString(), name };
      });
    return orRefuse(read, (cause) => refuse(`${file} is not a PEM certificate`, cause));
  });
}
