/** Reads --limits-store: the URL of the Redis or Valkey server in which several replicas count together. */
import { readNamed } from '../files/path-refusal.ts';
import type { ReadFile } from './files.ts';
import { invalid } from './values.ts';

/**
 * The URL of the store: `text` itself, or the content of the file that it names as `@FILE`, without white
 * space around it. `flag`: the name of the setting, for messages. Throws config_invalid if the file cannot be
 * read, or if the text is no URL of a store.
 */
export function readLimitsStore(text: string, readFile: ReadFile, flag: string): string {
  const path = text.startsWith('@') ? text.slice(1) : undefined;
  const what = path === undefined ? flag : `the file ${JSON.stringify(path)} of ${flag}`;
  const url =
    path === undefined
      ? text
      : Buffer.from(readNamed(what, path, readFile))
          .toString()
          .trim();
  parseStoreUrl(url, what);
  return url;
}

/**
 * The parts of the URL of a store; the host is without brackets, and the database 0 if there is none. `what`:
 * where the URL is. Throws config_invalid, without any part of the URL, which may hold a password.
 */
export function parseStoreUrl(text: string, what: string) {
  try {
    const url = new URL(text);
    const [, ipv6, name] = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))$/i.exec(url.hostname) ?? [];
    const host = ipv6 ?? name;
    const [, database] = /^\/?(\d{0,4})$/.exec(url.pathname) ?? [];
    const isStore = ['redis:', 'rediss:'].includes(url.protocol) && url.port !== '0';
    if (!isStore || host === undefined || database === undefined || url.search + url.hash !== '')
      throw new Error('it is another kind of URL');
    return {
      host,
      port: Number(url.port || 6379),
      tls: url.protocol === 'rediss:',
      username: decodeURIComponent(url.username) || undefined,
      password: decodeURIComponent(url.password) || undefined,
      database: Number(database),
    };
  } catch {
    const escapes = 'in user and password write %25 %40 %3A %2F %3F %23 for % @ : / ? #';
    throw invalid(`${what} wants redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or rediss://…; ${escapes}`);
  }
}
