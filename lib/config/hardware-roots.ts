/**
 * Decides which hardware roots the proxy trusts: those of AMD and Intel, or those of a simulator
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
import { PrivatemodeError } from '../errors.ts';
import { readNamed } from '../files/path-refusal.ts';
import { printable } from '../text.ts';
import type { Config } from './config.ts';
import { orRefuse } from './input-files.ts';
import { invalid, isLoopback } from './values.ts';

const INTEL = 'Intel SGX Root CA';
/** Common names of the certificates that a directory of hardware roots may contain. */
const NAMES = [...PRODUCT_NAMES.flatMap((product) => [`ARK-${product}`, `SEV-${product}`]), INTEL];

/**
 * The hardware roots to trust: the vendors' roots, or those of --unsafe-trust-roots for simulators. Throws
 * unsafe_roots_refused if the API endpoint or the CDN of a managed manifest belongs to the real service.
 * Otherwise, anybody could impersonate the service. Also throws the errors of `readTrustRoots`.
 */
export function trustRoots(
  config: Pick<Config, 'unsafeTrustRoots' | 'apiEndpoint' | 'cdnBaseUrl' | 'manifestPath'>,
): TrustRoots {
  const { unsafeTrustRoots: directory, apiEndpoint, cdnBaseUrl, manifestPath } = config;
  if (directory === undefined) return PRODUCTION_ROOTS;
  const hosts = [apiEndpoint.host, ...(manifestPath === undefined ? [new URL(cdnBaseUrl).host] : [])];
  const production = hosts.find(belongsToService);
  if (production !== undefined) {
    const why = 'it would let anybody impersonate the service';
    const what = `--unsafe-trust-roots is for simulators, and is refused for ${production}: ${why}`;
    throw new PrivatemodeError('unsafe_roots_refused', what);
  }
  return readTrustRoots(directory);
}

/**
 * Whether `host` belongs to the real service. `host` may have any spelling, with or without a port. Parsing
 * `host` as a URL normalises case, port, percent-encoding and full-width characters. A text that cannot be
 * parsed as a host counts as a host of the real service.
 */
function belongsToService(host: string): boolean {
  if (isIP(host) !== 0) return false; // an IPv6 address without brackets is no host of a URL
  const url = URL.parse(`https://${host.trim()}`);
  return url === null || url.hostname === '' || isProductionHost(url.hostname);
}

/** A hint for an error that may come from a simulator on this machine; for any other error, undefined. */
export const simulatorHint = (
  { blame, code }: Pick<PrivatemodeError, 'blame' | 'code'>,
  { apiEndpoint, unsafeTrustRoots }: Pick<Config, 'apiEndpoint' | 'unsafeTrustRoots'>,
): string | undefined =>
  unsafeTrustRoots === undefined &&
  isLoopback(apiEndpoint.host) &&
  (blame === 'attestation' || code === 'upstream_tls_untrusted')
    ? 'If the service is a simulator, give --unsafe-trust-roots DIR/roots, --manifest-path DIR/manifest.json and SSL_CERT_FILE=DIR/ca.pem, where DIR is the "dir" that it printed.'
    : undefined;

/** Puts the hint of `simulatorHint`, if there is one, in front of the error's remedy. */
export function withSimulatorHint(error: PrivatemodeError, config: Parameters<typeof simulatorHint>[1]) {
  const { code, message, remedy, detail } = error;
  const hint = simulatorHint(error, config);
  if (hint === undefined) return error;
  return new PrivatemodeError(code, message, { cause: error, detail, remedy: `${hint} Else: ${remedy}` });
}

/**
 * Reads the hardware roots from the `*.pem` files of a directory, and identifies each root by its CN. Throws
 * config_invalid for a directory without certificates, and for a certificate that is unreadable, unknown,
 * repeated, or without its counterpart (ARK and SEV of one product).
 */
function readTrustRoots(directory: string): TrustRoots {
  const refuse = (problem: string, cause?: unknown) => invalid(`--unsafe-trust-roots: ${problem}`, cause);
  const found = new Map<string, string>();
  const what = `the directory ${JSON.stringify(directory)} of --unsafe-trust-roots`;
  const names = readNamed(what, directory, (path) => readdirSync(path));
  for (const file of names.filter((name) => name.endsWith('.pem')).sort()) {
    const path = join(directory, file);
    const read = () =>
      certificatesIn(readFileSync(path, 'latin1')).map(({ der, subject }) => {
        return { name: commonName(subject) ?? '', pem: new X509Certificate(der).toString() };
      });
    for (const { name, pem } of orRefuse(read, (cause) =>
      refuse(`${path} is not a PEM certificate`, cause),
    )) {
      const shown = `${path}: "${printable(name, 100)}"`;
      if (!NAMES.includes(name)) throw refuse(`${shown} is not one of ${NAMES.join(', ')}`);
      if (found.has(name)) throw refuse(`${shown} is there twice`);
      found.set(name, pem);
    }
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
