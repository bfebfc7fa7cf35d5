/**
 * The client library as an npm package, dist/privatemode-ai: `npm run build:client`. One build for Node (its
 * own crypto) and one for everything else (Web Crypto and noble), each whole but for the SDK; declarations;
 * licences; the pages that explain it.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { type BuildOptions, build } from 'esbuild';
import { bundledPackages, REQUIRE, renderLicences } from './bundle.ts';

const ROOT = join(import.meta.dirname, '..');
const OUT = join(ROOT, 'dist/privatemode-ai');
const ENTRIES = { index: 'lib/client-library/index.ts', fetch: 'lib/client-library/fetch.ts' };

const COMMON: BuildOptions = {
  absWorkingDir: ROOT,
  entryPoints: ENTRIES,
  bundle: true,
  splitting: true,
  chunkNames: 'chunk', // one: what both entries share
  format: 'esm',
  target: 'es2024',
  // Not minified: an uncaught error prints the line of source that threw it, and applications that care for
  // size minify their own bundle.
  legalComments: 'none', // licences.txt has the licences
  charset: 'utf8',
  external: ['openai'],
  preserveSymlinks: true, // as in bundle.ts
  metafile: true,
  logLevel: 'error',
};

const BUILDS: Readonly<Record<'node' | 'portable', BuildOptions>> = {
  node: { platform: 'node', target: 'node22', banner: { js: REQUIRE }, outdir: join(OUT, 'node') },
  portable: {
    platform: 'browser',
    conditions: ['portable'],
    outdir: join(OUT, 'portable'),
    inject: [join(ROOT, 'lib/client-library/buffer.ts')],
    alias: { 'node:buffer': './lib/client-library/buffer.ts' },
  },
};

/** Pages that go along, and where to; a link from one of them to any other page becomes its words. */
const PAGES: ReadonlyMap<string, string> = new Map([
  ['docs/library.md', 'README.md'],
  ['docs/verify.md', 'docs/verify.md'],
  ['docs/security.md', 'docs/security.md'],
  ['docs/errors.md', 'docs/errors.md'],
  ['docs/protocol/attestation.md', 'docs/protocol/attestation.md'],
  ['docs/protocol/responses.md', 'docs/protocol/responses.md'],
]);

/** Writes both builds; returns the files that went in. */
async function bundle(): Promise<Set<string>> {
  const inputs = new Set<string>();
  for (const options of Object.values(BUILDS)) {
    const { metafile } = await build({ ...COMMON, ...options });
    for (const input of Object.keys(metafile?.inputs ?? {})) inputs.add(input);
  }
  return inputs;
}

/** Writes the declarations of the entries, and those that these import. */
function declare(): void {
  const all = mkdtempSync(join(tmpdir(), 'declarations-'));
  try {
    const tsc = join(ROOT, 'node_modules/.bin/tsc');
    const args = ['--project', join(ROOT, 'scripts/client-types.json'), '--outDir', all];
    execFileSync(process.execPath, [tsc, ...args], { cwd: ROOT, stdio: 'inherit' });
    const wanted = new Set(Object.keys(ENTRIES).map((name) => join(all, `client-library/${name}.d.ts`)));
    for (const file of wanted) {
      const text = readFileSync(file, 'utf8');
      for (const [, from] of text.matchAll(/['"](\.[^'"]+)\.ts['"]/g)) {
        wanted.add(join(dirname(file), `${from}.d.ts`));
      }
      write(`types/${relative(all, file)}`, text.replaceAll(/(['"]\.[^'"]+)\.ts(?=['"])/g, '$1.js'));
    }
  } finally {
    rmSync(all, { recursive: true });
  }
}

/** A page with its links as they are in the package. */
function page(from: string, to: string): string {
  return readFileSync(join(ROOT, from), 'utf8').replaceAll(
    /!?\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)/g,
    (_, words: string, target: string, fragment = '') => {
      const shipped = PAGES.get(join(dirname(from), target));
      return shipped === undefined ? words : `[${words}](${relative(dirname(to), shipped)}${fragment})`;
    },
  );
}

/** package.json of the package. */
function manifest(): object {
  const own = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const door = (name: keyof typeof ENTRIES): object => ({
    types: `./types/client-library/${name}.d.ts`,
    bun: `./portable/${name}.js`, // its BoringSSL has not all curves of OpenSSL
    deno: `./portable/${name}.js`, // it takes `node` too, and has not all of Node's cryptography
    node: `./node/${name}.js`,
    default: `./portable/${name}.js`,
  });
  return {
    name: 'privatemode-ai',
    version: own.version,
    description:
      'The OpenAI client, or any SDK that takes a fetch, on Privatemode: verifies the service by hardware attestation and encrypts end to end, in Node, Bun, Deno and browsers.',
    license: own.license,
    type: 'module',
    engines: { node: '>=22' },
    sideEffects: false,
    exports: { '.': door('index'), './fetch': door('fetch'), './package.json': './package.json' },
    peerDependencies: { openai: '>=6' },
    peerDependenciesMeta: { openai: { optional: true } },
    publishConfig: own.publishConfig,
  };
}

function write(path: string, text: string): void {
  mkdirSync(dirname(join(OUT, path)), { recursive: true });
  writeFileSync(join(OUT, path), text);
}

rmSync(OUT, { recursive: true, force: true });
const inputs = await bundle();
declare();
write('package.json', `${JSON.stringify(manifest(), undefined, 2)}\n`);
/** The packages that went into the library. */
export const CLIENT_PARTS = bundledPackages([...inputs]);
write('licences.txt', renderLicences(CLIENT_PARTS, 'privatemode-ai'));
for (const [from, to] of PAGES) write(to, page(from, to));
for (const name of ['LICENSE', 'CHANGELOG.md']) cpSync(join(ROOT, name), join(OUT, name));
