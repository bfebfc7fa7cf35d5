import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, type Plugin } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');

/**
 * The page that lib/observe/status-page.ts reads: beside the built program, an asset of the single
 * executable.
 */
export const STATUS_PAGE = join(ROOT, 'lib/observe/status-page.html');

/** What went into lib/crypto/ghash/module.json; scripts/build-ghash.ts writes it. */
export const GHASH_CRATES = join(ROOT, 'lib/crypto/ghash/crates.json');

/** Modules of CommonJS packages ask for Node's own by `require`, which an ES module does not have. */
export const REQUIRE =
  "import { createRequire as requireIn } from 'node:module'; const require = requireIn(process.execPath);";

/** Asked for by `debug` in a try block; a development tool brings it, a user does not. */
const LEFT_OUT = ['supports-color'];

/**
 * Packages under the MIT licence, as ours, that come without its text: the line of their copyright, from
 * their repository.
 */
const MIT_WITHOUT_TEXT: Readonly<Record<string, string>> = {
  '@redis/client': 'Copyright (c) 2022-2025, Redis, inc.',
};

/**
 * Modules that stand for others in the bundle, because a start has to load and run all of what it imports
 * (figures of a start that takes 520 ms of processor time):
 * - `import` of node:http makes Node read every export for its ES module, and with the getter of WebSocket
 *   load its own undici, 50 ms. `require` does not.
 * - Of the package undici two thirds are fetch, caches, mocks and WebSocket, 40 ms: the program uses its
 *   agent.
 */
const LEAN: Readonly<Record<string, string>> = {
  'node:http': "module.exports = require('node:http');",
  undici: `Object.assign(require('undici/lib/dispatcher/dispatcher').prototype, require('undici/lib/api'));
    exports.Agent = require('undici/lib/dispatcher/agent');
    exports.buildConnector = require('undici/lib/core/connect');`,
};

const lean: Plugin = {
  name: 'lean',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:http|undici)$/ }, ({ path, kind }) =>
      kind === 'require-call' ? undefined : { path, namespace: 'lean' },
    );
    onLoad({ filter: /./, namespace: 'lean' }, ({ path }) => ({
      contents: LEAN[path] as string,
      resolveDir: ROOT,
    }));
  },
};

export interface BundledPackage {
  readonly name: string;
  readonly version: string;
  /** SPDX identifier, where it has one. */
  readonly licence?: string;
  /** Text of its licence files, or, without any, of the notices in its sources. */
  readonly text: string;
}

/**
 * Writes the program that begins with `entry` and everything it imports into one ES module; tells which
 * packages went in.
 */
export async function bundle(outfile: string, entry = 'bin/privatemode-proxy.ts'): Promise<BundledPackage[]> {
  const { metafile } = await build({
    entryPoints: [join(ROOT, entry)],
    outfile,
    absWorkingDir: ROOT,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24', // the oldest that `engines` allows
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: 'none', // --licenses prints the licences
    charset: 'utf8',
    banner: { js: REQUIRE },
    external: LEFT_OUT,
    // module names get into the bundle: they are to be those below node_modules, wherever that is
    preserveSymlinks: true,
    metafile: true,
    plugins: [lean],
    logLevel: 'error',
  });
  return bundledPackages(Object.keys(metafile.inputs));
}

/** The licences of `product`, which is ours, and of these parts of it, each under its name. */
export function renderLicences(parts: readonly BundledPackage[], product = 'privatemode-proxy'): string {
  const own = { name: product, text: readFileSync(join(ROOT, 'LICENSE'), 'utf8') };
  const rule = '='.repeat(78);
  const titled = parts.map(({ name, version, licence, text }) => ({
    name: `${name} ${version}${licence === undefined ? '' : ` (${licence})`}`,
    text,
  }));
  return [own, ...titled].map(({ name, text }) => `${rule}\n${name}\n${rule}\n\n${text.trim()}\n`).join('\n');
}

/** The packages that these inputs of a bundle come from, with their licences. */
export function bundledPackages(inputs: readonly string[]): BundledPackage[] {
  const files = new Map<string, string[]>();
  for (const input of inputs) {
    const directory = /^(.*\bnode_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1];
    if (directory !== undefined) files.set(directory, [...(files.get(directory) ?? []), input]);
  }
  const packages = [...files].map(([directory, sources]) => {
    const about = JSON.parse(readFileSync(join(ROOT, directory, 'package.json'), 'utf8'));
    const text = licenceFiles(join(ROOT, directory)) || notices(sources) || mitLicence(about);
    if (text === '') throw new Error(`${directory} has no licence text`);
    return { name: about.name, version: about.version, licence: about.license, text };
  });
  const crates: BundledPackage[] = inputs.some((input) => input.includes('lib/crypto/ghash/'))
    ? JSON.parse(readFileSync(GHASH_CRATES, 'utf8'))
    : [];
  return [...packages, ...crates].sort((a, b) =>
    `${a.name} ${a.version}` < `${b.name} ${b.version}` ? -1 : 1,
  );
}

/** The texts of the licence files in a directory, joined. */
export function licenceFiles(directory: string): string {
  return readdirSync(directory)
    .filter((name) => /^(licen[cs]e|copying|notice)\b/i.test(name))
    .sort()
    .map((name) => readFileSync(join(directory, name), 'utf8').trim())
    .join('\n\n');
}

/** The text of our own licence, with the copyright of that package. */
function mitLicence({ name, license }: { readonly name: string; readonly license?: string }): string {
  const copyright = MIT_WITHOUT_TEXT[name];
  if (copyright === undefined || license !== 'MIT') return '';
  return readFileSync(join(ROOT, 'LICENSE'), 'utf8').replace(/^Copyright .*$/m, copyright);
}

/** The distinct comments with which the files begin, where they speak of rights. */
function notices(sources: readonly string[]): string {
  const texts = sources.map((source) => {
    const opening = /^(?:\s*(?:\/\/[^\n]*|\/\*[\s\S]*?\*\/))+/.exec(
      readFileSync(join(ROOT, source), 'utf8'),
    )?.[0];
    return (opening ?? '').replace(/^[ \t]*(?:\/\/|\/?\*+\/?) ?/gm, '').trim();
  });
  return [...new Set(texts.filter((text) => /copyright/i.test(text)))].sort().join('\n\n');
}
