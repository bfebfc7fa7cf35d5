/**
 * What honest model servers send passes as it was sent, and the official clients read it to the end: requests
 * and responses of every version that docs/protocol/grammar.md knows.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { decryptBody } from '../../lib/pipeline/decrypt-body.ts';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { bodyReader } from '../../lib/pipeline/request-body.ts';
import { callerOf, isIterable } from '../support/doors/sdk-outcome.ts';
import { type EndpointName, literalEndpoint } from '../support/remote/endpoints.ts';
import { fixedCipher } from '../support/remote/exchange-fixture.ts';
import { formBody } from '../support/remote/forms.ts';
import { DONE, openEvent, sealedStream } from '../support/remote/sealed-stream.ts';
import { takeIn } from '../support/remote/sealing.ts';
import { breaches } from '../support/remote/transcripts/grammar.ts';
import {
  type Members,
  TRANSCRIPTS,
  type Transcript,
  type TranscriptResponse,
} from '../support/remote/transcripts/transcript.ts';

/** The API has no word for some reasons to stop. A message without one is unfinished. */
const UNFINISHED = 'messages 0.33: no reason to stop';

/** What the request asks for, as the product reads it: among it all usage, so that none is taken out. */
function askedBy({ endpoint, request }: Transcript) {
  const rules = ENDPOINTS.find(({ id }) => id === endpoint)!;
  if (endpoint !== 'transcription') {
    const options = { stream_options: { include_usage: true, continuous_usage_stats: true } };
    const isOpenAi = endpoint === 'chat' || endpoint === 'completions';
    return takeIn(bodyReader(rules, undefined)!, JSON.stringify({ ...request, ...(isOpenAi && options) }));
  }
  const usage = { stream_include_usage: 'true', stream_continuous_usage_stats: 'true' };
  const fields = Object.entries({ ...request, ...usage });
  const form = formBody(
    'B',
    fields.map(([name, value]) => ({ name, body: Buffer.from(String(value)) })),
  );
  return takeIn(bodyReader(rules, 'multipart/form-data; boundary=B')!, form);
}

const inClear = (response: TranscriptResponse): string =>
  response.kind === 'whole'
    ? JSON.stringify(response.body)
    : response.events.map(({ event, data }) => (data === '[DONE]' ? DONE : openEvent(data, event))).join('');

function sealed({ endpoint, response }: Transcript): Buffer {
  const stream = sealedStream(literalEndpoint(endpoint).plain.response);
  if (response.kind === 'whole') {
    const { body } = response;
    return Buffer.from(Array.isArray(body) ? stream.array(body) : stream.object(body as Members));
  }
  const events = response.events.map(({ event, data }) =>
    data === '[DONE]' ? DONE : stream.event(data, event),
  );
  return Buffer.from(events.join(''));
}

/** The response as the application gets it. Throws what ends it. */
async function received(transcript: Transcript): Promise<string> {
  const { endpoint: id, response } = transcript;
  const asked = askedBy(transcript);
  if (response.kind === 'whole') {
    const success = response.status < 400 ? asked : undefined;
    return String((await decryptBody({ id }, fixedCipher(), success, sealed(transcript))).body);
  }
  const opener = new EventDecrypter({ id }, fixedCipher(), asked);
  const text = String(opener.feed(sealed(transcript)));
  opener.end();
  if (opener.failure !== undefined) throw opener.failure;
  return text;
}

/** What the official client makes of the text. Rejects if it takes it for an error. */
async function read(endpoint: EndpointName, request: Members, text: string, response: TranscriptResponse) {
  const isStream = response.kind === 'stream';
  const status = isStream ? 200 : response.status;
  const headers = { 'content-type': isStream ? 'text/event-stream' : 'application/json' };
  const answer = await callerOf(endpoint)(
    'http://127.0.0.1:1',
    { ...request, ...(isStream && { stream: true }) },
    async () => new Response(text, { status, headers }),
  );
  if (!isIterable(answer)) return answer;
  const items: unknown[] = [];
  for await (const item of answer) items.push(item);
  return items;
}

/** All of a whole response, or all events but pings and the end. */
const contentOf = (response: TranscriptResponse): unknown =>
  response.kind === 'whole'
    ? response.body
    : response.events.map(({ data }) => data).filter((data) => data !== '[DONE]' && data['type'] !== 'ping');

const isError = (response: TranscriptResponse): boolean =>
  response.kind === 'whole'
    ? response.status >= 400
    : response.events.some(({ data }) => data !== '[DONE]' && Object.hasOwn(data, 'error'));

describe('an honest response follows the grammar, passes as it was sent, and is read by the official client', () => {
  for (const transcript of TRANSCRIPTS) {
    const { title, endpoint, request, response } = transcript;
    it(title, async () => {
      if (title === UNFINISHED) {
        await assert.rejects(received(transcript), { code: 'stream_unfinished' });
        return;
      }
      assert.deepEqual(breaches(endpoint, request, response), []);
      const text = await received(transcript);
      assert.equal(text, inClear(response));
      const reading = read(endpoint, request, text, response);
      if (isError(response)) await assert.rejects(reading);
      else assert.deepEqual(JSON.parse(JSON.stringify(await reading)), contentOf(response));
    });
  }
});
