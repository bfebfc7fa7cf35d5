/**
 * What the npm package starts with: the check of the Node version, in a module of its own. An older Node
 * cannot link the program, and would show a line of it, which is all of it, instead of saying so.
 */

/**
 * `name`: of the program. `engines`: of package.json, such as `>=24.11`. `program`: the module to import,
 * relative to this one. Throws for another range of engines.
 */
export function launcher(name: string, engines: string, program: string): string {
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(engines) ?? [];
  if (major === undefined) throw new Error(`engines.node is ${engines}, and not such as >=24.11`);
  return `#!/usr/bin/env node
const found = process.versions.node;
const [major, minor] = found.split('.').map(Number);
if (major < ${major} || (major === ${major} && minor < ${minor})) {
  console.error('Error: ${name} needs Node ${major}.${minor} or newer, and this is Node ' + found);
  process.exit(1);
}
await import(${JSON.stringify(program)});
`;
}
