/**
 * Makes the name of the provider in an agent's configuration. The name is secret, and stays the same for one
 * user in one project, so that sessions can be resumed.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { existsSync, lstatSync, readFileSync, realpathSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, isAbsolute, join, relative } from 'node:path';
import type { Environment } from '../config/environment.ts';
import { makeDirectorySync, publish } from '../files/durable-file.ts';

export interface ProviderName {
  readonly name: string;
  /** Why the next run will use another name; undefined if it will use the same. */
  readonly why?: string;
}

const KEY_FILE = 'provider-names.key';
const KEY = /^[0-9a-f]{64}\n$/;
const OTHERS = 0o077;

/**
 * A name for which no file of a repository can hold prepared settings: a keyed hash of the user and the
 * project. The project is the nearest directory with a `.git`, from `directory` upwards, or else `directory`
 * itself. The key is made at the first use and kept in the user's state directory (XDG Base Directory
 * Specification: $XDG_STATE_HOME, or ~/.local/state), readable by its owner only. If the key cannot be kept,
 * the name is random. Never rejects.
 */
export async function providerName(env: Environment, directory: string): Promise<ProviderName> {
  const named = (key: string, text: string): string =>
    `privatemode-${createHmac('sha256', key).update(text).digest('hex').slice(0, 16)}`;
  try {
    const project = projectOf(realpathSync(directory));
    const key = await keptKey(makeStateDirectory(env, directory));
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

const homeOf = ({ HOME = '' }: Environment): string => (isAbsolute(HOME) ? HOME : userInfo().homedir);

/**
 * The directory for this program's files of one user. As the specification says, a relative path counts as
 * unset. So does a relative home, because it would lie in the project.
 */
export function stateDirectory(env: Environment): string {
  const { XDG_STATE_HOME = '' } = env;
  const state = isAbsolute(XDG_STATE_HOME) ? XDG_STATE_HOME : join(homeOf(env), '.local/state');
  return join(state, 'privatemode-proxy');
}

/**
 * Makes that directory and returns it. Throws if it is part of the project around `at`: a repository would
 * know what is in it. A home directory that is itself a project is allowed.
 */
export function makeStateDirectory(env: Environment, at: string): string {
  const directory = stateDirectory(env);
  makeDirectorySync(directory, 0o700);
  const project = projectOf(realpathSync(at));
  const inside = !relative(project, realpathSync(directory)).startsWith('..');
  if (inside && relative(project, realpathSync(homeOf(env))).startsWith('..'))
    throw new Error(`${directory} is part of the project`);
  return directory;
}

/**
 * Reads the key, and makes it if there is none; two processes that start at the same time agree on one.
 * Rejects if the key cannot be kept, or if others could know it.
 */
async function keptKey(directory: string): Promise<string> {
  const file = join(directory, KEY_FILE);
  if (!existsSync(file)) await publish(file, `${randomBytes(32).toString('hex')}\n`, 0o600);
  const { mode, uid } = lstatSync(file);
  const key = readFileSync(file, 'utf8');
  if ((mode & OTHERS) !== 0 || uid !== userInfo().uid || !KEY.test(key))
    throw new Error(`${file} has to be a key that only you can read: remove it`);
  return key;
}
