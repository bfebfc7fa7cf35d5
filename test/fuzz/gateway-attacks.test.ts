/**
 * Whatever a gateway without the key makes of a response, the openers give the honest answer, an honest
 * beginning of it and then an error, or an error. The attacks come from a generator (attack-generator.ts);
 * those that people thought of stand in test/e2e/gateway-attacks.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { ENDPOINTS, type Endpoint } from '../../lib/api/endpoints.ts';
import type { RequestCipher } from '../../lib/envelope/protection.ts';
import type { PrivatemodeError } from '../../lib/errors.ts';
import { decryptBody } from '../../lib/pipeline/decrypt-body.ts';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import type { Decrypter, RequestFacts } from '../../lib/pipeline/decrypter.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { readStream } from '../support/doors/sdk-outcome.ts';
import {
  asked,
  attacked,
  type GeneratedAttack,
  generatedAttack,
  type Recording,
  recordings,
  wireTextOf,
  withStatus,
} from '../support/remote/attack-generator.ts';
import { cutAnywhere } from '../support/remote/chunkings.ts';
import { plainOf } from '../support/remote/endpoints.ts';
import { fixedCipher } from '../support/remote/exchange-fixture.ts';
import { elementsInOrder, essenceOfBody, type HonestExchange } from '../support/remote/honest-exchanges.ts';
import { sealedMessages } from '../support/remote/sealing.ts';

const RECORDINGS = recordings();
const ERRORS = RECORDINGS.flatMap(({ exchange: { status = 200 } }, index) => (status >= 400 ? [index] : []));

const endpointOf = ({ api }: HonestExchange) => ENDPOINTS.find(({ id }) => id === api) as Endpoint;

const factsOf = ({ choices, events, format }: HonestExchange): RequestFacts => ({
  streaming: events !== undefined,
  choices,
  format: format as string | undefined,
  usage: 'every',
});

const openerFor = (exchange: HonestExchange, cipher: RequestCipher): EventDecrypter =>
  new EventDecrypter(endpointOf(exchange), cipher, factsOf(exchange));

interface Opened {
  readonly text: string;
  readonly failure: string | undefined;
}

/** A sealed request, with ivs that no recording has, and the cipher that opens what comes in answer. */
function sealedRequest({ request }: Recording) {
  let last = 0xff;
  const cipher = fixedCipher({ ivs: () => Buffer.alloc(12, last--) });
  return { cipher, messages: sealedMessages(cipher, ...request) };
}

/** What becomes of the response, the wire text of a stream cut at these places. */
async function open(
  exchange: HonestExchange,
  cipher: RequestCipher,
  text: string,
  cuts: readonly number[] = [],
): Promise<Opened> {
  if (exchange.events !== undefined) return opened(openerFor(exchange, cipher), text, cuts);
  const facts = (exchange.status ?? 200) < 400 ? factsOf(exchange) : undefined;
  try {
    const { body } = await decryptBody(endpointOf(exchange), cipher, facts, Buffer.from(text));
    return { text: body.toString(), failure: undefined };
  } catch (error) {
    return { text: '', failure: (error as PrivatemodeError).code };
  }
}

function opened(opener: Decrypter, text: string, cuts: readonly number[]): Opened {
  const wire = Buffer.from(text);
  const parts = cutAnywhere(wire, cuts).map((chunk) => Buffer.from(opener.feed(chunk)));
  opener.end();
  return { text: Buffer.concat(parts).toString('utf8'), failure: opener.failure?.code };
}

type Verdict = 'honest' | 'honest, then an error' | 'an error' | 'neither';

const isBeginning = (items: readonly unknown[], of: readonly unknown[]): boolean =>
  isDeepStrictEqual(items, of.slice(0, items.length));

const isError = (item: unknown): boolean => typeof item === 'object' && item !== null && 'error' in item;
/** Words that no honest response has. */
const DISHONEST = /REFLECTED|FORGED/;

/**
 * An error event that authenticates is an error, whatever it says: content that a gateway made one of is not
 * taken for content.
 */
function streamVerdict({ exchange, essences }: Recording, { text, failure }: Opened): Verdict {
  const { items } = readStream(exchange.api, text);
  if (DISHONEST.test(JSON.stringify(items))) return 'neither';
  if (failure === undefined && essences.some((whole) => isDeepStrictEqual(items, whole))) return 'honest';
  const endsInError = isError(items.at(-1));
  const delivered = endsInError ? items.slice(0, -1) : items;
  if (failure === undefined && !endsInError) return 'neither';
  if (!essences.some((whole) => isBeginning(delivered, whole))) return 'neither';
  return delivered.length === 0 ? 'an error' : 'honest, then an error';
}

const isObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
/** What may stand in clear in an error, and of which form: a gateway says nothing with it. */
const CLEAR_IN_ERRORS: Readonly<Record<string, (value: unknown) => boolean>> = {
  id: (value) => value === null || typeof value === 'string',
  usage: (value) => value === null || isObject(value),
  type: (value) => value === 'error',
};

function wholeVerdict({ exchange, essences }: Recording, { text, failure }: Opened): Verdict {
  const { api, status = 200 } = exchange;
  if (failure !== undefined) return text === '' ? 'an error' : 'neither';
  const body = (text === '' ? {} : JSON.parse(text)) as Readonly<Record<string, unknown>>;
  // Whatever was sealed in it, the status tells the client that it is one; nothing in it is a gateway's.
  if (status >= 400) {
    const clear = plainOf(api).response.filter((name) => Object.hasOwn(body, name));
    const isSaid = clear.some((name) => CLEAR_IN_ERRORS[name]?.(body[name]) !== true);
    return isSaid || DISHONEST.test(JSON.stringify(body)) ? 'neither' : 'an error';
  }
  const whole = essences[0]?.[0];
  if (api !== 'unstructured')
    return isDeepStrictEqual(essenceOfBody(api, body), whole) ? 'honest' : 'neither';
  // An array has no end that is authenticated: elements at the end of the sequence can be missing.
  const elements = Array.isArray(body) ? elementsInOrder(body) : [{}];
  return isBeginning(elements, elementsInOrder(whole as unknown[])) ? 'honest' : 'neither';
}

const verdictOf = (recording: Recording, opened: Opened): Verdict =>
  (recording.exchange.events === undefined ? wholeVerdict : streamVerdict)(recording, opened);

/** Everything that one needs to understand a third outcome. */
const report = (recording: Recording, attack: GeneratedAttack, { text, failure }: Opened): string =>
  [
    `neither the honest answer nor an honest beginning and an error: ${recording.exchange.name}`,
    `  ${asked(recording, attack).choices} choices asked for, ${recording.exchange.choices} given`,
    ...attack.edits.map((edit) => `  ${JSON.stringify(edit)}`),
    `  messages ${attack.reseat ? 'put back in their order' : 'left where they were moved to'}`,
    `opened, ${failure ?? 'no failure'}:`,
    text,
  ].join('\n');

describe('responses that a gateway edits', () => {
  it('are opened unchanged if the gateway edits nothing', async () => {
    for (const recording of RECORDINGS) {
      const { cipher } = sealedRequest(recording);
      const response = attacked(recording, { edits: [], reseat: false }, []);
      const expected = (recording.exchange.status ?? 200) >= 400 ? 'an error' : 'honest';
      const opened = await open(recording.exchange, cipher, wireTextOf(recording, response));
      assert.equal(opened.failure, undefined, `${recording.exchange.name}: ${opened.failure}`);
      assert.equal(verdictOf(recording, opened), expected, opened.text);
    }
  });

  it('are opened as the honest answer, as its beginning and an error, or as an error', async () => {
    const counts: Record<Verdict, number> = {
      ...{ honest: 0, 'honest, then an error': 0, 'an error': 0, neither: 0 },
    };
    const seen = new Set<string>();
    const property = fc.asyncProperty(
      fc.oneof(
        { weight: 4, arbitrary: fc.nat({ max: RECORDINGS.length - 1 }) },
        { weight: 1, arbitrary: fc.constantFrom(...ERRORS) },
      ),
      generatedAttack,
      fc.array(fc.nat(), { maxLength: 3 }),
      async (which, attack, cuts) => {
        const recording = withStatus(RECORDINGS[which] as Recording, attack);
        const { cipher, messages } = sealedRequest(recording);
        const wire = wireTextOf(recording, attacked(recording, attack, messages));
        const opened = await open(asked(recording, attack), cipher, wire, cuts);
        const verdict = verdictOf(recording, opened);
        // With another number of choices than was asked for, the whole answer is not the honest one.
        const isOther = asked(recording, attack).choices !== recording.exchange.choices;
        const isFooled = isOther && verdict === 'honest' && !isError(recording.essences[0]?.at(-1));
        counts[verdict] += 1;
        seen.add(recording.exchange.name);
        assert.ok(verdict !== 'neither' && !isFooled, report(recording, attack, opened));
      },
    );
    const verbose = RECORDINGS.findIndex(({ exchange }) => exchange.name === 'transcription-verbose');
    /** The property once failed for this one. */
    const twice: GeneratedAttack = {
      edits: [{ kind: 'duplicate member', at: 0, member: 2, to: 0, name: 'segments' }],
      choices: 0,
      reseat: true,
      succeeds: false,
    };
    await fc.assert(property, { seed: 20261122, numRuns: 2_000, examples: [[verbose, twice, []]] });
    assert.equal(seen.size, RECORDINGS.length);
    const { neither: _, ...others } = counts;
    assert.ok(Math.min(...Object.values(others)) > 100, JSON.stringify(counts));
  });
});

const CHATS = RECORDINGS.filter(
  ({ exchange: { api, choices, status = 200 } }) => api === 'chat' && choices === 1 && status < 400,
);
/** What a client of the Responses API takes for a call that it may run, or for the end. */
const PROMISES =
  /event: response\.(?:completed|incomplete|(?:function_call_arguments|custom_tool_call_input)\.done)\n|event: response\.output_item\.done\ndata: [^\n]*"type":"(?:[a-z_]+_call|message)"/;

/** The same response behind POST /v1/responses, its connection broken where it failed. */
async function openTranslated(
  { exchange }: Recording,
  cipher: RequestCipher,
  text: string,
  cuts: readonly number[],
): Promise<Opened> {
  const translator = createTranslator('r-1');
  const isStream = exchange.events !== undefined;
  const request = JSON.stringify({ model: 'm', input: 'asked', stream: isStream });
  translator.request(() => ({}) as never)(Buffer.from(request), {});
  if (isStream) {
    const opener = openerFor(exchange, cipher);
    opener.sink = translator.stream();
    const { text: events, failure } = opened(opener, text, cuts);
    const last = opener.failure === undefined ? '' : String(translator.fail(opener.failure));
    return { text: events + last, failure };
  }
  const body = await open(exchange, cipher, text);
  return body.failure === undefined
    ? { ...body, text: String(translator.body(Buffer.from(body.text))) }
    : body;
}

it('responses that a gateway edits, translated for the Responses API, have a complete tool call or an end only if the chat response is the honest one', async () => {
  const counts = { whole: 0, failed: 0 };
  const property = fc.asyncProperty(
    fc.constantFrom(...CHATS),
    generatedAttack,
    fc.array(fc.nat(), { maxLength: 3 }),
    async (recording, attack, cuts) => {
      const { cipher, messages } = sealedRequest(recording);
      const wire = wireTextOf(recording, attacked(recording, attack, messages));
      const verdict = verdictOf(recording, await open(recording.exchange, cipher, wire, cuts));
      const translated = await openTranslated(recording, sealedRequest(recording).cipher, wire, cuts);
      const { text, failure } = translated;
      const isError = /event: response\.failed\n[^\n]*\n\n$/.test(text);
      const isWhole = recording.exchange.events === undefined ? failure === undefined : PROMISES.test(text);
      counts[isWhole ? 'whole' : 'failed'] += 1;
      const told = report(recording, attack, translated);
      assert.ok(!isWhole || (verdict === 'honest' && !isError), told);
      assert.ok(!DISHONEST.test(text), told);
      // What fails says so, but for a body of which nothing is shown.
      assert.ok(isWhole || isError || text === '', told);
    },
  );
  await fc.assert(property, { seed: 20261124, numRuns: 2_000 });
  assert.ok(Math.min(counts.whole, counts.failed) > 50, JSON.stringify(counts));
});
