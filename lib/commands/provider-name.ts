/** The name of the provider in an agent's configuration: the same for a user in a project, so that sessions can be resumed, and secret. */
import { createHmac, randomBytes } from 'node:crypto';
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { dirname, isAbsolute, join, relative } from 'node:path';
import type { Environment } from '../config/environment.ts';

export interface ProviderName {
  readonly name: string;
  /** Why the next run will have another name; undefined: it will have the same. */
  readonly why?: string;
}

const KEY_FILE = 'provider-names.key';
const KEY = /^[0-9a-f]{64}\n$/;
const OTHERS = 0o077;

/**
 * A name that no file of a repository can have prepared settings for: a keyed hash of the user and the project, which is the nearest
 * directory above `directory` with a `.git`, or `directory` itself. The key is made at the first call and kept in the user's state
 * directory (XDG Base Directory Specification: $XDG_STATE_HOME, or ~/.local/state), for its owner alone. Where it cannot be kept, the
 * name is random. Never throws.
 */
export function providerName(env: Environment, directory: string): ProviderName {
  const named = (key: string, text: string): string =>
    `privatemode-${createHmac('sha256', key).update(text).digest('hex').slice(0, 16)}`;
  try {
    const project = projectOf(realpathSync(directory));
    const key = keptKey(stateDirectory(env), project);
    return { name: named(key, JSON.stringify([userInfo().uid, project])) };
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    return { name: named(randomBytes(32).toString('hex'), ''), why: code ?? message };
  }
}

function projectOf(directory: string): string {
  for (let at = directory; ; at = dirname(at)) {
    if (existsSync(join(at, '.git'))) return at;
    if (at === dirname(at)) return directory;
  }
}

/** As the specification says, a relative path counts as unset. */
function stateDirectory({ XDG_STATE_HOME = '', HOME = homedir() }: Environment): string {
  return join(isAbsolute(XDG_STATE_HOME) ? XDG_STATE_HOME : join(HOME, '.local/state'), 'privatemode-proxy');
}

/** Throws where the key cannot be kept, or where others could know it. */
function keptKey(directory: string, project: string): string {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const inside = !relative(project, realpathSync(directory)).startsWith('..');
  // A home directory may be a project of its own; a repository that brings its state directory along knows the key.
  if (inside && relative(project, realpathSync(homedir())).startsWith('..'))
    throw new Error(`${directory} is part of the project`);
  const file = join(directory, KEY_FILE);
  if (!existsSync(file)) make(file);
  const { mode, uid } = lstatSync(file);
  const key = readFileSync(file, 'utf8');
  if ((mode & OTHERS) !== 0 || uid !== userInfo().uid || !KEY.test(key))
    throw new Error(`${file} has to be a key that only you can read: remove it`);
  return key;
}

/** Two that start at the same time agree on one key: a link never replaces a file, and shows it whole. */
function make(file: string): void {
  const own = `${file}.${process.pid}`;
  writeFileSync(own, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600, flag: 'wx' });
  try {
    linkSync(own, file);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'EEXIST') throw thrown;
  } finally {
    rmSync(own);
  }
}
