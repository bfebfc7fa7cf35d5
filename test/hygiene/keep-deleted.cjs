/**
 * Preloaded into every Node process of a run (`NODE_OPTIONS=--require …`): what it deletes below TMPDIR is moved to KEPT_FILES
 * instead, to be searched when all is over. CommonJS, because processes of an older Node may be among them.
 */
const fs = require('node:fs');
const { syncBuiltinESMExports } = require('node:module');
const { basename, dirname, join, relative, resolve } = require('node:path');
const { threadId } = require('node:worker_threads');

const { KEPT_FILES, TMPDIR } = process.env;
const { mkdirSync, renameSync } = fs;
let moved = 0;

/** Whether it was moved; else whoever wanted it deleted goes on. */
function keep(path) {
  const from = resolve(String(path));
  const place = relative(TMPDIR, from);
  if (place === '' || place.startsWith('..')) return false;
  moved += 1;
  const to = join(KEPT_FILES, `${process.pid}-${threadId}-${moved}`, dirname(place));
  try {
    mkdirSync(to, { recursive: true });
    renameSync(from, join(to, basename(place)));
    return true;
  } catch {
    return false; // not there, or on another file system
  }
}

if (KEPT_FILES && TMPDIR) {
  for (const name of ['rmSync', 'unlinkSync']) {
    const original = fs[name];
    fs[name] = (path, ...rest) => keep(path) || original(path, ...rest);
  }
  for (const name of ['rm', 'unlink']) {
    const [original, promised] = [fs[name], fs.promises[name]];
    fs[name] = (path, ...rest) =>
      keep(path) ? process.nextTick(rest.at(-1), null) : original(path, ...rest);
    fs.promises[name] = async (path, ...rest) => (keep(path) ? undefined : promised(path, ...rest));
  }
  syncBuiltinESMExports();
}
