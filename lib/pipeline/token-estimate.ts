/** How many tokens a request has, estimated from the length of its text. */
import { isParsable, scanInTurns } from '../json/scan.ts';
import { modelIn } from './plain-members.ts';
import { type BodyReader, inTurns } from './request-body.ts';

/**
 * With o200k_base, program text and prose in Latin script have 3.9 to 4.8 bytes per token, other scripts up
 * to 7.9, JSON 2.5, digits and hex 1.7. The value is lower than most of these: an estimate that is too high
 * compacts early, but one that is too low overruns the context.
 */
const BYTES_PER_TOKEN = 3.5;
/** The most that Anthropic's rule (width × height ÷ 750, after scaling down) gives for one image. */
const TOKENS_PER_MEDIUM = 1_600;
/** Members with text for the model. */
const READ_BY_MODEL: readonly string[] = ['system', 'messages', 'tools'];

const MEDIA_SOURCES: ReadonlySet<unknown> = new Set(['base64', 'url', 'file']);

interface Count {
  /** UTF-8 bytes of all strings, names of members included. */
  text: number;
  /** Images and documents, whose bytes are not text. */
  media: number;
}

/** Adds what is in a parsed value. `name`: of the member that has it. */
function addTo(count: Count, value: unknown, name = ''): void {
  if (typeof value === 'string') count.text += Buffer.byteLength(value);
  else if (Array.isArray(value)) for (const each of value) addTo(count, each);
  else if (typeof value === 'object' && value !== null) {
    const isMedium = name === 'source' && MEDIA_SOURCES.has((value as { readonly type?: unknown }).type);
    if (isMedium) count.media += 1;
    for (const [each, member] of Object.entries(value)) {
      count.text += Buffer.byteLength(each);
      if (!(isMedium && each === 'data' && typeof member === 'string')) addTo(count, member, each);
    }
  }
}

/**
 * Estimates the tokens of a request of the Messages API: the bytes of all strings in `system`, `messages` and
 * `tools` ÷ 3.5, rounded up, and 1600 for each image or document. A member that holds too much to be parsed
 * counts with all its bytes. Throws invalid_json, duplicate_member, unsupported_member_name, missing_model
 * and invalid_model.
 */
export const tokenEstimateReader: BodyReader<{ readonly tokens: number }> = (body, { pause }) =>
  inTurns(estimate(body), pause);

function* estimate(body: Buffer): Generator<undefined, { readonly tokens: number }> {
  const { members } = yield* scanInTurns(body);
  modelIn(body, members);
  const count: Count = { text: 0, media: 0 };
  for (const member of members) {
    const { name, start, end } = member;
    if (!READ_BY_MODEL.includes(name)) continue;
    if (isParsable(member)) addTo(count, JSON.parse(body.toString('utf8', start, end)));
    else count.text += end - start;
    yield;
  }
  return { tokens: Math.ceil(count.text / BYTES_PER_TOKEN) + TOKENS_PER_MEDIUM * count.media };
}
