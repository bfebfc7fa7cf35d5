/** Reads --limits-store: the URL of the Redis or Valkey server in which several replicas count together. */
import { readNamed } from '../files/path-refusal.ts';
import type { ReadFile } from './files.ts';
import { invalid } from './values.ts';

/** The parts of a store's URL. */
export interface StoreAddress {
  /** IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
  /** Whether the URL begins with rediss://. */
  readonly tls: boolean;
  readonly username: string | undefined;
  readonly password: string | undefined;
  /** Number of the database; 0 if the URL names none. */
  readonly database: number;
}

const DEFAULT_PORT = 6379;

/**
 * The URL of the store: `text` itself, or the content of the file that it names as `@FILE`, without white
 * space around it. `flag`: the name of the setting, for messages. Throws config_invalid if the file cannot be
 * read, or if the text is no URL of a store.
 */
export function readLimitsStore(text: string, readFile: ReadFile, flag: string): string {
  if (!text.startsWith('@')) {
    parseStoreUrl(text, flag);
    return text;
  }
  const path = text.slice(1);
  const what = `the file ${JSON.stringify(path)} of ${flag}`;
  const url = Buffer.from(readNamed(what, path, readFile))
    .toString('utf8')
    .trim();
  parseStoreUrl(url, what);
  return url;
}

/**
 * Parses the URL of a store. `what`: where the URL is, for messages. Throws config_invalid; the message
 * quotes no part of the URL, which may hold a password.
 */
export function parseStoreUrl(text: string, what: string): StoreAddress {
  const refuse = (problem: string): never => {
    throw invalid(
      `${what} wants redis:// or rediss://, [USER]:PASSWORD@ if need be, HOST[:PORT][/DB]: ${problem}`,
    );
  };
  const url = /^rediss?:\/\//i.test(text)
    ? URL.parse(text)
    : refuse('it begins with neither; write redis:// in front of the host');
  if (url === null)
    return refuse('it is not a URL; in user and password write %25 %40 %3A %2F %3F %23 for % @ : / ? #');
  const host = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))$/i.exec(url.hostname);
  if (host === null) return refuse('it names no host');
  if (url.port === '0') return refuse('it names port 0');
  if (url.search !== '' || url.hash !== '') refuse('nothing may follow the database');
  const database = /^\/?(\d{0,4})$/.exec(url.pathname)?.[1] ?? refuse('the database is a number');
  const decode = (part: string): string | undefined => {
    try {
      return part === '' ? undefined : decodeURIComponent(part);
    } catch {
      return refuse('user or password has a % that is not written as %25');
    }
  };
  return {
    host: host[1] ?? (host[2] as string),
    port: url.port === '' ? DEFAULT_PORT : Number(url.port),
    tls: url.protocol === 'rediss:',
    username: decode(url.username),
    password: decode(url.password),
    database: Number(database),
  };
}
