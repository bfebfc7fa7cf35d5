/**
 * Which security fixes the Node that runs the program lacks, and which of them concern what this proxy uses.
 */

/** A feature of Node that a proxy may use. `none`: no proxy uses what the fix repairs. */
type Feature = 'TLS listener' | 'connections kept open to the service' | 'none';

interface Fix {
  readonly cve: string;
  /** Release line of Node → the first release of that line with the fix. */
  readonly fixed: Readonly<Record<'24' | '26', string>>;
  readonly feature: Feature;
  readonly flaw: string;
}

const JUNE = { 24: '24.17.0', 26: '26.3.1' };
const OCTOBER = { 24: '24.22.1', 26: '26.12.1' };
const NOVEMBER = { 24: '24.22.3', 26: '26.13.1' };

/**
 * The security fixes of 2026 that this program has to know, oldest first. Source: the release notes of Node
 * 24.17.0, 24.22.1, 24.22.3, 26.3.1, 26.12.1 and 26.13.1. Flaws of HTTP/2, of the permission model and of zip
 * files are left out, because this program uses none of these.
 */
export const FIXES: readonly Fix[] = [
  fix('CVE-2026-48931', JUNE, 'connections kept open to the service', 'a response can precede its request'),
  fix('CVE-2026-48934', JUNE, 'none', 'a TLS session can be reused for another host name'),
  fix(
    'CVE-2026-105481',
    OCTOBER,
    'connections kept open to the service',
    'a response can precede its request',
  ),
  fix('CVE-2026-105482', OCTOBER, 'none', 'dns.resolve accepts names with a null byte'),
  fix('CVE-2026-111497', OCTOBER, 'none', 'the Brotli decoder writes out of bounds'),
  fix('CVE-2026-123864', NOVEMBER, 'TLS listener', 'a client can read memory of other connections'),
  fix('CVE-2026-123867', NOVEMBER, 'none', 'a host name with a CA of its own accepts the default CA'),
  fix('CVE-2026-123872', NOVEMBER, 'none', 'a resumed session can skip the client certificate'),
  fix('CVE-2026-126051', NOVEMBER, 'TLS listener', 'a client can crash the server'),
];

/**
 * The fixes that a release of Node lacks. `version`: as in `process.versions.node`. Undefined: this program
 * knows no fixes of that release line.
 */
export function missingFixes(version: string): readonly Fix[] | undefined {
  const [line = ''] = version.split('.');
  if (line !== '24' && line !== '26') return undefined;
  return FIXES.filter(({ fixed }) => isOlder(version, fixed[line]));
}

/**
 * Says in one sentence what is wrong with a release of Node for a proxy; undefined if nothing is. `tls`: it
 * serves HTTPS.
 */
export function runtimeDefect(version: string, { tls }: { readonly tls: boolean }): string | undefined {
  const missing = missingFixes(version);
  if (missing === undefined) return `Node ${version} is of a line that this program is not tested with`;
  const used: Readonly<Record<Feature, boolean>> = {
    'TLS listener': tls,
    'connections kept open to the service': true,
    none: false,
  };
  const concerns = missing.filter(({ feature }) => used[feature]);
  if (concerns.length === 0) return undefined;
  const causes = concerns.map(({ cve, feature, flaw }) => `${cve} (${feature}: ${flaw})`);
  return `Node ${version} lacks fixes that this proxy needs: ${causes.join(', ')}; Node ${newest(version, concerns)} has them`;
}

/**
 * The text about the runtime in `--version --verbose`: the releases of Node and OpenSSL, and each missing fix
 * with the feature that it concerns.
 */
export function describeRuntime({
  node,
  openssl,
}: {
  readonly node: string;
  readonly openssl: string;
}): string {
  const missing = missingFixes(node);
  const lines = (missing ?? []).map(
    ({ cve, feature, flaw }) =>
      `  ${cve}: ${flaw}; concerns ${feature === 'none' ? 'nothing here' : feature}`,
  );
  const verdict =
    missing === undefined
      ? 'This program is not tested with that line of Node.'
      : missing.length === 0
        ? 'No missing security fix is known to this release of the program.'
        : `Security fixes that it lacks, all of them in Node ${newest(node, missing)}:`;
  return `${[`Node ${node}, OpenSSL ${openssl}`, verdict, ...lines].join('\n')}\n`;
}

function fix(cve: string, fixed: Fix['fixed'], feature: Feature, flaw: string): Fix {
  return { cve, fixed, feature, flaw };
}

/**
 * The first release, on the line of `version`, that has all of `fixes`. They are in the order of their
 * releases.
 */
function newest(version: string, fixes: readonly Fix[]): string {
  return fixes.at(-1)?.fixed[version.startsWith('24.') ? '24' : '26'] ?? version;
}

function isOlder(version: string, floor: string): boolean {
  const [, minor = 0, patch = 0] = version.split('.').map(Number);
  const [, minorFloor = 0, patchFloor = 0] = floor.split('.').map(Number);
  return minor < minorFloor || (minor === minorFloor && patch < patchFloor);
}
