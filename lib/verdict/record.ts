/**
 * One exchange with the service as one JSON file, the record: what crossed the wire and what it was judged by,
 * so that anybody can judge it again without a network (docs/verify.md). It holds no key and no secret.
 */
import { sha256 } from '#crypto/digest';
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

export type Exchange = Pick<Subject, 'nonce' | 'document' | 'manifest' | 'roots' | 'secret'>;

/** The form of a JSON value. `base64`: bytes; a list has one form for its items; `?` marks what may be absent. */
type Form = 'string' | 'number' | 'object' | 'base64' | readonly [Form] | { readonly [member: string]: Form };

const RECORD = {
  ...{ version: 'string', host: 'string', time: 'string' },
  ...{ nonce: 'base64', document: 'base64', manifest: 'base64' },
  /** Absent: those of AMD and Intel. */
  'roots?': {
    snp: { 'Milan?': { ark: 'string', ask: 'string' }, 'Genoa?': { ark: 'string', ask: 'string' } },
    'tdx?': { root: 'string' },
  },
  /** What the source was asked, and what it gave, or why it gave nothing. */
  collateral: [
    {
      ...{ ask: 'string', query: 'object', 'error?': 'string' },
      ...{ 'vcek?': 'base64', 'crl?': 'base64', 'body?': 'string', 'issuerChain?': 'string' },
      'stored?': { fetchedAt: 'number', because: 'string' },
    },
  ],
  'secret?': { publicKey: 'base64', encapsulatedKey: 'base64', signature: 'base64', meshCert: 'base64' },
  verdict: 'object',
} as const satisfies Form;

/** What `inForm` makes of a record. */
interface Stored extends Omit<Exchange, 'roots'> {
  readonly version: string;
  readonly host: string;
  readonly time: string;
  readonly roots?: TrustRoots;
  readonly collateral: readonly Json[];
  readonly verdict: Json;
}

/** What a source is asked, and what its answer must have. The answer to amdVcek is this member alone. */
const QUESTIONS = {
  ...{ amdVcek: ['vcek'], amdCrl: ['crl'], intelRootCrl: ['crl'], intelPckCrl: ['crl', 'issuerChain'] },
  ...{ intelTcbInfo: ['body', 'issuerChain'], intelQeIdentity: ['body', 'issuerChain'] },
} as const satisfies Record<keyof CollateralSource, readonly string[]>;
type Question = keyof CollateralSource;
type Ask = (query: unknown) => Promise<unknown>;
type Json = Readonly<Record<string, unknown>>;

/** Records one attestation, which asks `source`, of the service at `host` (https://HOST:PORT). */
export function recordExchange(collateral: CollateralSource, host: string) {
  const answers = new Map<string, object>();
  const source = sourceOf(async (ask, query) => {
    const note = (told: object) => answers.set(keyOf(ask, query), { ask, query, ...told });
    try {
      const answer = await (collateral as unknown as Record<Question, Ask>)[ask](query);
      note(withBase64(answer instanceof Uint8Array ? { vcek: answer } : (answer as object)));
      return answer;
    } catch (thrown) {
      if (thrown instanceof PrivatemodeError) note({ error: thrown.message });
      throw thrown;
    }
  });
  return {
    source,
    record({ nonce, document, manifest, roots, secret }: Exchange, verdict: Verdict): ExchangeRecord {
      const told = {
        ...{ version: VERSION, host, time: verdict.at },
        ...withBase64({ nonce, document, manifest }),
        ...(verdict.roots === 'custom' && { roots }),
        collateral: [...answers.values()],
        ...(secret && { secret: withBase64(secret) }),
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
  // Bounds the text, and refuses a member that is there twice: two readers may read it differently.
  parseStrictJson(file, { depth: 8, values: 20_000 }, refuse);
  const json: unknown = JSON.parse(Buffer.from(file).toString());
  const record = inForm(json, RECORD, 'record', refuse) as Stored;
  const { version, host, nonce, document, manifest, secret, roots = PRODUCTION_ROOTS } = record;
  const time = new Date(record.time);
  if (Number.isNaN(time.getTime())) throw refuse('its "time" is no time');
  const collateral = sourceOf(async (ask, query) => {
    const told = record.collateral.find((each) => keyOf(each['ask'], each['query']) === keyOf(ask, query));
    if (told !== undefined && QUESTIONS[ask].every((member) => told[member] !== undefined))
      return ask === 'amdVcek' ? told['vcek'] : told;
    const { error = `the record has no answer to ${ask}` } = told ?? {};
    throw new PrivatemodeError('collateral_unavailable', error as string);
  });
  const ended = errorIn(record.verdict);
  const subject = { nonce, document, manifest, roots, collateral, secret, ended };
  return { version, host, time, stated: record.verdict, subject };
}

/** The error outside the checks that a verdict states. To believe it is safe: no error accepts anything. */
function errorIn({ failure }: Json): PrivatemodeError | undefined {
  const { id, code, found } = (failure ?? {}) as Json;
  if (id !== null || typeof code !== 'string' || typeof found !== 'string') return undefined;
  return Object.hasOwn(ERRORS, code) ? new PrivatemodeError(code as ErrorCode, found) : undefined;
}

/** The value, with bytes in place of base64 and without members that the form lacks. Throws as `refuse` says. */
function inForm(value: unknown, form: Form, name: string, refuse: (defect: string) => Error): unknown {
  const type = typeof form === 'object' ? 'object' : form === 'base64' ? 'string' : form;
  if (typeof value !== type || value === null) throw refuse(`its "${name}" is no ${type}`);
  if (form === 'base64') {
    const bytes = Buffer.from(value as string, 'base64');
    if (bytes.toString('base64') !== value) throw refuse(`its "${name}" is not base64 with padding`);
    return new Uint8Array(bytes);
  }
  if (typeof form === 'string') return value;
  if (Array.isArray(form))
    return Object.values(value as object).map((item) => inForm(item, form[0], name, refuse));
  const members = Object.entries(form).flatMap(([key, inner]) => {
    const member = key.replace('?', '');
    const given = (value as Json)[member];
    return given === undefined && key !== member ? [] : [[member, inForm(given, inner, member, refuse)]];
  });
  return Object.fromEntries(members);
}

const keyOf = (ask: unknown, query: unknown): string => JSON.stringify([ask, query]);

const sourceOf = (ask: (question: Question, query: unknown) => Promise<unknown>): CollateralSource =>
  Object.fromEntries(
    Object.keys(QUESTIONS).map((name) => [name, (query: unknown = {}) => ask(name as Question, query)]),
  ) as unknown as CollateralSource;

const withBase64 = (members: object): object =>
  Object.fromEntries(
    Object.entries(members).map(([name, value]) => [
      name,
      value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value,
    ]),
  );
