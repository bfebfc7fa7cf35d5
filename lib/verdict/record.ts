/**
 * A record is one exchange with the service as a JSON file. A record has the messages and other inputs of the
 * checks, but no key or secret. So anybody can judge the exchange again offline (docs/verify.md).
 */
import { sha256Hex } from '../attestation/check.ts';
import { base64, integer, type JsonMembers, OBJECT, readMembers, TEXT } from '../attestation/json-members.ts';
import { PRODUCTION_ROOTS, type TrustRoots } from '../attestation/roots/production.ts';
import type { CollateralSource } from '../attestation/verify-evidence.ts';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { printableJson } from '../text.ts';
import { VERSION } from '../version.ts';
import type { Subject } from './judge.ts';
import type { Verdict } from './verdict.ts';

export type JudgedExchange = Pick<Subject, 'nonce' | 'document' | 'manifest' | 'roots' | 'secret'>;

/** The text of a record, and the record's name. The name is the SHA-256 of the text in lower-case hex. */
export type ExchangeRecord = Readonly<Record<'sha256' | 'text', string>>;

/** Records one attestation of `host` (https://HOST:PORT). The collateral comes from `source`. */
export function recordExchange(collateral: CollateralSource, host: string) {
  const answers = new Map<string, object>();
  const source = sourceOf(async (ask, name, query) => {
    const answer = await collateral[name](query as never).catch((thrown: Error) => thrown);
    const told = answer instanceof Error ? { error: answer.message } : answer;
    answers.set(ask, { ask, ...(told instanceof Uint8Array ? { vcek: told } : told) });
    return answer;
  });
  return {
    source,
    record(exchange: JudgedExchange, verdict: Verdict): ExchangeRecord {
      const { nonce, document, manifest, secret } = exchange;
      const roots = verdict.roots === 'custom' ? exchange.roots : undefined;
      const told = { version: VERSION, host, time: verdict.at, nonce, document, manifest, roots };
      const whole = { ...told, collateral: [...answers.values()], secret, verdict };
      const text = `${printableJson(JSON.stringify(whole, bytesInBase64, 2))}\n`;
      return { sha256: sha256Hex(Buffer.from(text)), text };
    },
  };
}

/**
 * Reads a record so that `judge` can judge the exchange again. The members `time`, `host`, `version` and the
 * verdict `stated` are unproved claims of the record's writer. Throws the error that `refuse` makes.
 */
export function readRecord(file: Uint8Array, refuse: (defect: string) => Error) {
  // A member that appears twice is refused, because two JSON readers may choose different values.
  const record = readMembers(file, { depth: 8, values: 20_000 }, refuse);
  const { version, host, time: told, verdict, ...messages } = read(record, RECORD);
  const time = new Date(told);
  if (Number.isNaN(time.getTime())) throw refuse('time is no time');
  const answers = new Map<string, unknown>();
  for (const answer of record.objects('collateral')) {
    const ask = answer.get('ask', TEXT);
    const name = ask.split(' ')[0] as Question;
    if (!Object.hasOwn(ANSWERS, name)) throw refuse(`nobody asks for ${JSON.stringify(ask)}`);
    answers.set(ask, answerIn(answer, ANSWERS[name]));
  }
  const stated = JSON.parse(verdict.source) as Json;
  const subject: Omit<Subject, 'now'> = {
    ...messages,
    roots: record.members.has('roots') ? rootsIn(record.object('roots')) : PRODUCTION_ROOTS,
    collateral: sourceOf((ask) => answers.get(ask) ?? missing(`the record has no answer to ${ask}`)),
    secret: readIfThere(record, 'secret', SECRET),
    ended: errorIn(stated),
  };
  return { version, host, time, stated, subject };
}

type Question = keyof CollateralSource;
type Json = Readonly<Record<string, unknown>>;

const BASE64 = base64(0);
/** The members of a record except `collateral`, and the members of the objects in a record. */
const MESSAGES = { nonce: BASE64, document: BASE64, manifest: BASE64 };
const RECORD = { version: TEXT, host: TEXT, time: TEXT, ...MESSAGES, verdict: OBJECT };
const SECRET = { publicKey: BASE64, encapsulatedKey: BASE64, signature: BASE64, meshCert: BASE64 };
const LIST = { crl: BASE64 };
const SIGNED = { body: TEXT, issuerChain: TEXT };
const ANSWERS: Readonly<Record<Question, Shape>> = {
  amdVcek: { vcek: BASE64 },
  amdCrl: LIST,
  intelTcbInfo: SIGNED,
  intelQeIdentity: SIGNED,
  intelPckCrl: { ...LIST, issuerChain: TEXT },
  intelRootCrl: LIST,
};
/** The members that describe a stored copy of collateral. A stored copy is used if a fetch fails. */
const STORED = { fetchedAt: integer(8_640_000_000_000_000), because: TEXT };

type Shape = Readonly<Record<string, Parameters<JsonMembers['get']>[1]>>;

/** Reads the members that `shape` names, each with the type that `shape` gives. */
const read = <Wanted extends Shape>(from: JsonMembers, shape: Wanted) =>
  Object.fromEntries(Object.entries(shape).map(([name, kind]) => [name, from.get(name, kind)])) as {
    [Name in keyof Wanted]: NonNullable<ReturnType<Wanted[Name]['read']>>;
  };

const readIfThere = <Wanted extends Shape>(from: JsonMembers, name: string, shape: Wanted) =>
  from.members.has(name) ? read(from.object(name), shape) : undefined;

function answerIn(told: JsonMembers, shape: Shape): unknown {
  if (told.members.has('error')) return missing(told.get('error', TEXT));
  const { vcek, ...answer } = read(told, shape);
  return vcek ?? { ...answer, stored: readIfThere(told, 'stored', STORED) };
}

function rootsIn(roots: JsonMembers): TrustRoots {
  const snp = roots.object('snp');
  const pair = { ark: TEXT, ask: TEXT };
  const pairs = Array.from(snp.members.keys(), (product) => [product, read(snp.object(product), pair)]);
  return { snp: Object.fromEntries(pairs), tdx: readIfThere(roots, 'tdx', { root: TEXT }) };
}

/** The error outside the checks in a recorded verdict. An error can be trusted: it accepts no evidence. */
function errorIn({ failure }: Json): PrivatemodeError | undefined {
  const { id, code, found } = (failure ?? {}) as Json;
  if (id !== null || typeof code !== 'string' || typeof found !== 'string') return undefined;
  return Object.hasOwn(ERRORS, code) ? new PrivatemodeError(code as ErrorCode, found) : undefined;
}

const missing = (why: string) => new PrivatemodeError('collateral_unavailable', why);

/** Makes a source of collateral that calls `answer`. `ask` is, say, `amdCrl {"product":"Genoa"}`. */
const sourceOf = (answer: (ask: string, name: Question, query: unknown) => unknown): CollateralSource =>
  Object.fromEntries(
    Object.keys(ANSWERS).map((name) => [
      name,
      async (query: unknown = {}) => {
        const given = await answer(`${name} ${JSON.stringify(query)}`, name as Question, query);
        if (given instanceof Error) throw given;
        return given;
      },
    ]),
  ) as unknown as CollateralSource;

/** A replacer for JSON.stringify, which would otherwise write a Buffer as an object. */
function bytesInBase64(this: Json, name: string, value: unknown): unknown {
  const member = this[name];
  return member instanceof Uint8Array ? Buffer.from(member).toString('base64') : value;
}
