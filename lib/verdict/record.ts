/**
 * One exchange with the service as one JSON file, the record: what crossed the wire and what it was judged
 * by, so that anybody can judge it again without a network (docs/verify.md). It holds no key and no secret.
 */
import { sha256 } from '#crypto';
import { integer, JsonMembers, OBJECT, TEXT } from '../attestation/json-members.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import type { CollateralSource, TrustRoots } from '../attestation/verify-evidence.ts';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { parseStrictJson } from '../strict-json.ts';
import { safeJson } from '../text.ts';
import { VERSION } from '../version.ts';
import type { Subject } from './judge.ts';
import type { Verdict } from './verdict.ts';

/** The text of a record, and its name: the SHA-256 in lower-case hex. */
export interface ExchangeRecord {
  readonly sha256: string;
  readonly text: string;
}

export type JudgedExchange = Pick<Subject, 'nonce' | 'document' | 'manifest' | 'roots' | 'secret'>;

/** Records one attestation, which asks `source`, of the service at `host` (https://HOST:PORT). */
export function recordExchange(collateral: CollateralSource, host: string) {
  const answers = new Map<string, object>();
  const source = sourceOf(async (ask, name, query) => {
    try {
      const answer: unknown = await collateral[name](query as never);
      answers.set(ask, {
        ask,
        ...inBase64(answer instanceof Uint8Array ? { vcek: answer } : Object(answer)),
      });
      return answer;
    } catch (thrown) {
      if (thrown instanceof PrivatemodeError) answers.set(ask, { ask, error: thrown.message });
      throw thrown;
    }
  });
  return {
    source,
    record({ nonce, document, manifest, roots, secret }: JudgedExchange, verdict: Verdict): ExchangeRecord {
      const told = {
        version: VERSION,
        host,
        time: verdict.at,
        ...inBase64({ nonce, document, manifest }),
        ...(verdict.roots === 'custom' && { roots }),
        collateral: [...answers.values()],
        ...(secret && { secret: inBase64(secret) }),
        verdict,
      };
      const text = `${safeJson(told, 2)}\n`;
      return { sha256: Buffer.from(sha256(Buffer.from(text))).toString('hex'), text };
    },
  };
}

/**
 * Reads a record, for `judge`. Nothing vouches for `time`, `host`, `version` and `stated`, its verdict: they
 * are what its writer says. Throws what `refuse` makes of a defect.
 */
export function readRecord(file: Uint8Array, refuse: (defect: string) => Error) {
  // A member that is there twice is refused: two readers may read it differently.
  const json = parseStrictJson(file, { depth: 8, values: 20_000 }, refuse);
  const record = new JsonMembers(json, [], (_, path, { expected }) =>
    refuse(`its ${path.length === 0 ? 'text' : JSON.stringify(path.join('.'))} is not ${expected}`),
  );
  const time = new Date(record.get('time', TEXT));
  if (Number.isNaN(time.getTime())) throw refuse('its "time" is no time');
  const answers = new Map<string, unknown>();
  for (const told of record.objects('collateral')) {
    const ask = told.get('ask', TEXT);
    const name = ask.split(' ')[0] as Question;
    if (!Object.hasOwn(READ, name)) throw refuse(`nobody asks for ${JSON.stringify(ask)}`);
    answers.set(ask, told.members.has('error') ? unavailable(told.get('error', TEXT)) : READ[name](told));
  }
  const collateral = sourceOf(async (ask) => {
    const answer = answers.get(ask) ?? unavailable(`the record has no answer to ${ask}`);
    if (answer instanceof Error) throw answer;
    return answer;
  });
  const bytes = <Name extends string>(from: JsonMembers, ...names: Name[]) =>
    Object.fromEntries(names.map((name) => [name, from.get(name, BASE64)])) as Record<Name, Uint8Array>;
  const has = (name: string): boolean => record.members.has(name);
  const secret = has('secret')
    ? bytes(record.object('secret'), 'publicKey', 'encapsulatedKey', 'signature', 'meshCert')
    : undefined;
  const roots = has('roots') ? rootsIn(record.object('roots')) : PRODUCTION_ROOTS;
  const messages = bytes(record, 'nonce', 'document', 'manifest');
  record.get('verdict', OBJECT);
  const { verdict: stated } = JSON.parse(Buffer.from(file).toString()) as { verdict: Json };
  const subject: Omit<Subject, 'now'> = { ...messages, roots, collateral, secret, ended: errorIn(stated) };
  return { version: record.get('version', TEXT), host: record.get('host', TEXT), time, stated, subject };
}

type Question = keyof CollateralSource;
type Json = Readonly<Record<string, unknown>>;

/** The error outside the checks that a verdict states. To believe it is safe: no error accepts anything. */
function errorIn({ failure }: Json): PrivatemodeError | undefined {
  const { id, code, found } = (failure ?? {}) as Json;
  if (id !== null || typeof code !== 'string' || typeof found !== 'string') return undefined;
  return Object.hasOwn(ERRORS, code) ? new PrivatemodeError(code as ErrorCode, found) : undefined;
}

function rootsIn(from: JsonMembers): TrustRoots {
  const snp = from.object('snp');
  const pairs = Array.from(snp.members.keys(), (product) => {
    const pair = snp.object(product);
    return [product, { ark: pair.get('ark', TEXT), ask: pair.get('ask', TEXT) }];
  });
  const tdx = from.members.has('tdx') ? { root: from.object('tdx').get('root', TEXT) } : undefined;
  return { snp: Object.fromEntries(pairs), tdx };
}

const BASE64 = {
  expected: 'base64 with padding',
  read(text: unknown): Uint8Array | undefined {
    const bytes = typeof text === 'string' ? Buffer.from(text, 'base64') : undefined;
    return bytes?.toString('base64') === text ? bytes && new Uint8Array(bytes) : undefined;
  },
};

/** How each answer of a source is read. A list that stands in for one that could not be fetched says so. */
const storedIn = (told: JsonMembers) => {
  if (!told.members.has('stored')) return {};
  const stored = told.object('stored');
  const fetchedAt = stored.get('fetchedAt', integer(8_640_000_000_000_000));
  return { stored: { fetchedAt, because: stored.get('because', TEXT) } };
};
const list = (told: JsonMembers) => ({ crl: told.get('crl', BASE64), ...storedIn(told) });
const chain = (told: JsonMembers) => ({ issuerChain: told.get('issuerChain', TEXT) });
const signed = (told: JsonMembers) => ({ body: told.get('body', TEXT), ...chain(told), ...storedIn(told) });
const READ = {
  amdVcek: (told) => told.get('vcek', BASE64),
  amdCrl: list,
  intelTcbInfo: signed,
  intelQeIdentity: signed,
  intelPckCrl: (told) => ({ ...list(told), ...chain(told) }),
  intelRootCrl: list,
} satisfies { [Name in Question]: (told: JsonMembers) => Awaited<ReturnType<CollateralSource[Name]>> };

const unavailable = (why: string) => new PrivatemodeError('collateral_unavailable', why);

/**
 * A source whose answers `answer` gives. `ask`: the whole question as text, as `amdCrl {"product":"Genoa"}`.
 */
const sourceOf = (
  answer: (ask: string, name: Question, query: unknown) => Promise<unknown>,
): CollateralSource =>
  Object.fromEntries(
    Object.keys(READ).map((name) => [
      name,
      (query: unknown = {}) => answer(`${name} ${JSON.stringify(query)}`, name as Question, query),
    ]),
  ) as unknown as CollateralSource;

const inBase64 = (members: object): object =>
  Object.fromEntries(
    Object.entries(members).map(([name, value]) => [
      name,
      value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value,
    ]),
  );
