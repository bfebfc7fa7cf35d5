/**
 * The client library as an npm package, dist/privatemode-ai: `npm run build:client`. One module for Node (its own crypto) and one for
 * everything else (Web Crypto and noble), each whole but for the SDKs; declarations; licences; README.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BuildOptions, build } from 'esbuild';
import { bundledPackages, renderLicences } from './bundle.ts';

const ROOT = join(import.meta.dirname, '..');
const OUT = join(ROOT, 'dist/privatemode-ai');
const ENTRIES = { index: 'lib/client/index.ts', fetch: 'lib/client/fetch.ts' };
const PEERS = ['openai', '@anthropic-ai/sdk'];

const COMMON: BuildOptions = {
  absWorkingDir: ROOT,
  entryPoints: ENTRIES,
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2024',
  minify: true,
  keepNames: true, // error classes are told apart by name in logs
  legalComments: 'none',
  charset: 'utf8',
  external: PEERS,
  preserveSymlinks: true,
  metafile: true,
  logLevel: 'error',
};

const BUILDS: Readonly<Record<'node' | 'portable', BuildOptions>> = {
  node: { platform: 'node', outdir: join(OUT, 'node') },
  portable: {
    platform: 'browser',
    conditions: ['portable'],
    outdir: join(OUT, 'portable'),
    inject: [join(ROOT, 'lib/client/buffer.ts')],
    alias: { 'node:buffer': './lib/client/buffer.ts' },
  },
};

rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT, { recursive: true });
const inputs = new Set<string>();
for (const options of Object.values(BUILDS)) {
  const { metafile } = await build({ ...COMMON, ...options });
  for (const input of Object.keys(metafile?.inputs ?? {})) inputs.add(input);
}
execFileSync(
  process.execPath,
  [
    join(ROOT, 'node_modules/typescript/bin/tsc'),
    ...['--project', 'tsconfig.json', '--noEmit', 'false', '--declaration', '--emitDeclarationOnly'],
    ...['--outDir', join(OUT, 'types')],
  ],
  { cwd: ROOT, stdio: 'inherit' },
);
const own = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const door = (name: string): object => ({
  types: `./types/client/${name}.d.ts`,
  bun: `./portable/${name}.js`, // BoringSSL differs from OpenSSL in corners of elliptic curves
  node: `./node/${name}.js`,
  default: `./portable/${name}.js`,
});
const manifest = {
  name: 'privatemode-ai',
  version: own.version,
  description:
    'The OpenAI and Anthropic clients, or any SDK that takes a fetch, on Privatemode: verifies the service by hardware attestation and encrypts end to end, in Node, Bun, Deno and browsers.',
  license: own.license,
  type: 'module',
  engines: { node: '>=22' },
  sideEffects: false,
  exports: { '.': door('index'), './fetch': door('fetch'), './package.json': './package.json' },
  peerDependencies: { openai: '>=6', '@anthropic-ai/sdk': '>=0.100' },
  peerDependenciesMeta: { openai: { optional: true }, '@anthropic-ai/sdk': { optional: true } },
  publishConfig: own.publishConfig,
};
writeFileSync(join(OUT, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
writeFileSync(join(OUT, 'licences.txt'), renderLicences(bundledPackages([...inputs])));
cpSync(join(ROOT, 'LICENSE'), join(OUT, 'LICENSE'));
cpSync(join(ROOT, 'docs/client.md'), join(OUT, 'README.md'));
