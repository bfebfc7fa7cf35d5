/**
 * What the npm package starts with: the check of the Node version, in a module of its own. An older Node cannot link the program, and
 * would show a line of it, which is all of it, instead of saying so. It also has Node keep the compiled code: a start then
 * takes 383 ms instead of 412 (medians of ten). What is kept is executed: it lies in `compiled` of the workspace, where the workspace was
 * named (the default is whatever directory one happens to be in), belongs to the user, and nobody else can write there.
 */

/** `engines`: of package.json, such as `>=24.11`. `program`: the module to import, relative to this one. Throws for another range. */
export function launcher(engines: string, program: string): string {
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(engines) ?? [];
  if (major === undefined) throw new Error(`engines.node is ${engines}, and not such as >=24.11`);
  return `#!/usr/bin/env node
const found = process.versions.node;
const [major, minor] = found.split('.').map(Number);
if (major < ${major} || (major === ${major} && minor < ${minor})) {
  console.error('Error: privatemode-proxy needs Node ${major}.${minor} or newer, and this is Node ' + found);
  process.exit(1);
}
const { lstatSync, mkdirSync } = await import('node:fs');
const { enableCompileCache } = await import('node:module');
const { join } = await import('node:path');
const { argv, env, getuid } = process;
const isOurs = (path, mode) => {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found?.isDirectory() && found.uid === getuid?.() && (found.mode & mode) === 0;
};
const at = argv.findLastIndex((word) => word === '--workspace' || word.startsWith('--workspace='));
const workspace = at < 0 ? env.PRIVATEMODE_PROXY_WORKSPACE : argv[at].slice('--workspace='.length) || argv[at + 1];
try {
  if (workspace && isOurs(workspace, 0o022)) {
    const compiled = join(workspace, 'compiled');
    if (lstatSync(compiled, { throwIfNoEntry: false }) === undefined) mkdirSync(compiled, { mode: 0o700 });
    if (isOurs(compiled, 0o077)) enableCompileCache(compiled);
  }
} catch {} // a workspace that cannot be read or written: the program says so
await import(${JSON.stringify(program)});
`;
}
