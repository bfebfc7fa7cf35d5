/**
 * A bill of materials of one artefact, as CycloneDX 1.6 in JSON: what is inside it, not what the checkout
 * needs to make it.
 */
import { createHash } from 'node:crypto';
import type { BundledPackage } from './bundle.ts';

/** One part of an artefact. */
export interface Part {
  readonly type: 'library' | 'platform' | 'file';
  readonly name: string;
  readonly version?: string;
  readonly purl?: string;
  /** SPDX expression. */
  readonly licence?: string | undefined;
  readonly sha256?: string;
}

export interface Artefact {
  /** Of its file. */
  readonly name: string;
  readonly version: string;
  readonly sha256: string;
  readonly parts: readonly Part[];
}

/** Entries of `process.versions` that are numbers of interfaces and of data, and no software. */
const NO_SOFTWARE = new Set(['node', 'modules', 'napi', 'unicode', 'cldr', 'tz']);

/** The packages of a bundle (scripts/bundle.ts). */
export function packageParts(packages: readonly BundledPackage[]): Part[] {
  return packages.map(({ name, version, licence }) => {
    const crate = /^(.+) \(Rust\)$/.exec(name)?.[1];
    const purl = crate ? `pkg:cargo/${crate}@${version}` : `pkg:npm/${name.replace('@', '%40')}@${version}`;
    return { type: 'library', name: crate ?? name, version, purl, licence };
  });
}

/** Node and the libraries that are compiled into it, by `process.versions` of that release. */
export function runtimeParts(versions: Readonly<Record<string, string | undefined>>): Part[] {
  const { node = '' } = versions;
  const inside = Object.entries(versions).filter(([name, version]) => version && !NO_SOFTWARE.has(name));
  return [
    { type: 'platform', name: 'node', version: node, purl: `pkg:generic/node@${node}`, licence: 'MIT' },
    ...inside.map(([name, version]) => ({ type: 'library', name, version: String(version) }) as const),
  ];
}

/**
 * The document. `epoch`: its time, in seconds since 1970. The same artefact gives the same bytes, and its
 * serial number follows from its digest.
 */
export function renderSbom({ name, version, sha256, parts }: Artefact, epoch: number): string {
  const components = parts.map((part, index) => ({
    type: part.type,
    'bom-ref': part.purl ?? `part-${index}-${part.name}`,
    name: part.name,
    ...(part.version !== undefined && { version: part.version }),
    ...(part.sha256 !== undefined && { hashes: [{ alg: 'SHA-256', content: part.sha256 }] }),
    ...(part.licence !== undefined && { licenses: [{ expression: part.licence }] }),
    ...(part.purl !== undefined && { purl: part.purl }),
  }));
  const document = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${uuid5(`sha256:${sha256}`)}`,
    version: 1,
    metadata: {
      timestamp: new Date(epoch * 1000).toISOString().replace('.000Z', 'Z'),
      component: {
        type: 'application',
        'bom-ref': 'artefact',
        name,
        version,
        hashes: [{ alg: 'SHA-256', content: sha256 }],
        licenses: [{ expression: 'MIT' }],
      },
    },
    components,
    dependencies: [{ ref: 'artefact', dependsOn: components.map((component) => component['bom-ref']) }],
  };
  return `${JSON.stringify(document, undefined, 2)}\n`;
}

/** The namespace of URLs (RFC 9562, 6.6). */
const NAMESPACE = Buffer.from('6ba7b8119dad11d180b400c04fd430c8', 'hex');

/** The UUID that follows from a name (RFC 9562, 5.5). */
function uuid5(name: string): string {
  const digest = createHash('sha1').update(NAMESPACE).update(name).digest().subarray(0, 16);
  digest[6] = ((digest[6] as number) & 0x0f) | 0x50;
  digest[8] = ((digest[8] as number) & 0x3f) | 0x80;
  return digest.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
