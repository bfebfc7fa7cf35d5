/**
 * Compiles lib/crypto/ghash to WebAssembly: `npm run build:ghash` writes the module and the licences of what
 * went into it beside its source, `-- --check` fails where the files there differ from what the compiler
 * makes. The compiler is that of Debian 12, which scripts/install-system-tools.sh installs; a cargo of
 * version 1.70 or later, which may be another, fetches the crates.
 */
import { execFileSync } from 'node:child_process';
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
import { join } from 'node:path';
import { type BundledPackage, GHASH_CRATES, licenceFiles } from './bundle.ts';
import { readOptions } from './options.ts';

const SOURCE = join(import.meta.dirname, '../lib/crypto/ghash');
const MODULE = join(SOURCE, 'module.json');
const COMPILER = {
  rustc: '/usr/bin/rustc',
  version: 'rustc 1.63.0',
  cargo: '/usr/bin/cargo',
  linker: '/usr/bin/wasm-ld-14',
};
const TARGET = 'wasm32-unknown-unknown';
/**
 * The crate polyval takes its 64-bit code, which needs half the time, where pointers have 64 bits;
 * WebAssembly multiplies so with any.
 */
const MULTIPLY_64_BITS = '--cfg target_pointer_width="64"';

const { values } = readOptions(import.meta.filename, {
  options: { check: { type: 'boolean', default: false } },
});
const work = mkdtempSync(join(tmpdir(), 'ghash-'));
try {
  const version = execFileSync(COMPILER.rustc, ['--version'], { encoding: 'utf8' });
  if (version.trim() !== COMPILER.version)
    throw new Error(`the compiler is ${version.trim()}, not ${COMPILER.version}`);
  cpSync(SOURCE, work, { recursive: true });
  execFileSync('cargo', ['vendor', '--locked', '--versioned-dirs', 'crates'], { cwd: work, stdio: 'pipe' });
  mkdirSync(join(work, '.cargo'));
  writeFileSync(
    join(work, '.cargo/config.toml'),
    '[source.crates-io]\nreplace-with = "crates"\n[source.crates]\ndirectory = "crates"\n',
  );
  execFileSync(COMPILER.cargo, ['build', '--release', '--locked', '--offline', '--target', TARGET], {
    cwd: work,
    stdio: 'pipe',
    env: {
      PATH: process.env['PATH'],
      HOME: work,
      RUSTC: COMPILER.rustc,
      RUSTFLAGS: `-C linker=${COMPILER.linker} --remap-path-prefix=${work}=/ghash ${MULTIPLY_64_BITS}`,
    },
  });
  const wasm = readFileSync(join(work, 'target', TARGET, 'release/ghash_module.wasm'));
  const made = [
    [MODULE, `${JSON.stringify(wasm.toString('base64'))}\n`],
    [GHASH_CRATES, `${JSON.stringify(crates(), null, 2)}\n`],
  ] as const;
  for (const [path, text] of made) {
    if (!values.check) writeFileSync(path, text);
    else if (readFileSync(path, 'utf8') !== text) throw new Error(`${path} is not what lib.rs compiles to`);
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** What the compiler took in: of the crates that are locked, those that it made for the target. */
function crates(): BundledPackage[] {
  const made = readdirSync(join(work, 'target', TARGET, 'release/deps'));
  const taken = new Set(made.map((name) => name.replace(/-[0-9a-f]+\.d$/, '').replaceAll('_', '-')));
  return readdirSync(join(work, 'crates')).flatMap((directory) => {
    const [, name = '', version = ''] = /^(.+)-(\d+\.\d+\.\d+)$/.exec(directory) ?? [];
    if (!taken.has(name)) return [];
    const path = join(work, 'crates', directory);
    // Of two licences to choose from, the shorter one.
    const text = existsSync(join(path, 'LICENSE-MIT'))
      ? readFileSync(join(path, 'LICENSE-MIT'), 'utf8')
      : licenceFiles(path);
    const licence = /^license = "(.*)"$/m.exec(readFileSync(join(path, 'Cargo.toml'), 'utf8'))?.[1] ?? '';
    return [{ name: `${name} (Rust)`, version, licence, text }];
  });
}
