/**
 * Which hardware roots the proxy trusts: those of AMD and Intel, or those of a simulator
 * (--unsafe-trust-roots), which are refused for the real service.
 */
import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { isProductionHost, PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { PRODUCT_NAMES, type Product } from '../attestation/snp/packed-fields.ts';
import type { TrustRoots } from '../attestation/verify-evidence.ts';
import { certificatesIn, commonName } from '../attestation/x509.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { readNamed } from '../files/path-refusal.ts';
import { printable } from '../text.ts';
import type { Config } from './config.ts';
import type { Environment } from './environment.ts';
import { orRefuse } from './files.ts';
import { invalid, isLoopback } from './values.ts';

const INTEL = 'Intel SGX Root CA';
/** Common names of the certificates that a directory of roots may hold. */
const NAMES = [...PRODUCT_NAMES.flatMap((product) => [`ARK-${product}`, `SEV-${product}`]), INTEL];

/**
 * The hardware roots to trust: the vendors', or those of --unsafe-trust-roots, which are for simulators only.
 * Throws unsafe_roots_refused if the API, or the CDN that a manifest would come from, belongs to the real
 * service; also throws as `readTrustRoots` does.
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

/** Codes of the errors that a simulator causes if its certificates, roots or manifest were not given. */
const UNKNOWN_SIMULATOR: readonly ErrorCode[] = [
  'upstream_tls_untrusted',
  'attestation_failed',
  'manifest_mismatch',
  'manifest_unavailable',
];

/**
 * A hint for an error; otherwise undefined. If the given roots lack one that is needed, the hint names it. If
 * the service is on this machine and may be a simulator, the hint names the settings that a simulator needs
 * and that are missing. If none is missing, it says that the given files may belong to another simulator.
 * Flags that --help leaves out are named only here.
 */
export function simulatorHint(
  { code, detail }: Pick<PrivatemodeError, 'code' | 'detail'>,
  {
    apiEndpoint,
    unsafeTrustRoots,
    manifestPath,
  }: Pick<Config, 'apiEndpoint' | 'unsafeTrustRoots' | 'manifestPath'>,
  env: Environment,
): string | undefined {
  const lacking = detail?.missingRoot;
  if (lacking !== undefined && unsafeTrustRoots !== undefined) {
    const names = lacking === 'tdx' ? INTEL : `ARK-${lacking} and SEV-${lacking}`;
    return `The directory of --unsafe-trust-roots lacks ${names}: if the service is a simulator, name the "roots" in the "dir" that it printed.`;
  }
  const missing = [
    unsafeTrustRoots === undefined && '--unsafe-trust-roots DIR/roots',
    manifestPath === undefined && '--manifest-path DIR/manifest.json',
    !env['SSL_CERT_FILE'] && 'SSL_CERT_FILE=DIR/ca.pem',
  ].filter((setting) => setting !== false);
  if (!isLoopback(apiEndpoint.host) || !UNKNOWN_SIMULATOR.includes(code)) return undefined;
  if (missing.length === 0) return FOREIGN_FILES.includes(code) ? OTHER_SIMULATOR : undefined;
  return `If the service is a simulator, add ${missing.join(', ')}, where DIR is the "dir" that it printed.`;
}

/**
 * Codes of the errors that the files of another simulator cause. manifest_mismatch is not among them: it has
 * its own remedy.
 */
const FOREIGN_FILES: readonly ErrorCode[] = ['attestation_failed', 'upstream_tls_untrusted'];
const OTHER_SIMULATOR =
  'The files that you named may be those of another simulator: compare them with the "dir" that the running one printed, which makes new ones with each new directory.';

/** Puts the hint of `simulatorHint`, if there is one, in front of the error's remedy. */
export function withSimulatorHint(
  error: PrivatemodeError,
  config: Parameters<typeof simulatorHint>[1],
  env: Environment,
): PrivatemodeError {
  const { code, message, remedy, detail } = error;
  const hint = simulatorHint(error, config, env);
  if (hint === undefined) return error;
  return new PrivatemodeError(code, message, { cause: error, detail, remedy: `${hint} Else: ${remedy}` });
}

/**
 * Whether `host` (with or without a port) belongs to the real service, however it is spelled: parsing it as a
 * URL normalises case, port, percent-encoding and full-width forms. A text that cannot be read as a host
 * counts as one of the service.
 */
function belongsToService(host: string): boolean {
  if (isIP(host) !== 0) return false; // an IPv6 address comes without brackets, and a URL cannot hold it so
  const url = URL.parse(`https://${host.trim()}`);
  return url === null || url.hostname === '' || isProductionHost(url.hostname);
}

/**
 * Reads the hardware roots from the `*.pem` files of a directory, and identifies each by the CN of its
 * subject. `others`: what happens to other certificates. Throws config_invalid, naming `flag`, for a
 * certificate that is unreadable, occurs twice or lacks its counterpart (ARK and SEV of one product), and for
 * a directory without certificates.
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
  const what = `the directory ${JSON.stringify(directory)} of ${flag}`;
  const names = readNamed(what, directory, (path) => readdirSync(path));
  const files = names.filter((name) => name.endsWith('.pem')).sort();
  return files.flatMap((name) => {
    const file = join(directory, name);
    const read = () =>
      certificatesIn(readFileSync(file, 'latin1')).map(({ der, subject }) => {
        return { file, pem: new X509Certificate(der).toString(), name: commonName(subject) ?? '' };
      });
    return orRefuse(read, (cause) => refuse(`${file} is not a PEM certificate`, cause));
  });
}
