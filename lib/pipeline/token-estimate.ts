/** How many tokens a request has, estimated from the length of its text. */
import { modelNamed } from '../api/model-names.ts';
import { inTurns, isParsable, type Pause, scanInTurns } from '../json/scan.ts';
import { memberIn } from './plain-values.ts';

// Bytes per token (o200k_base): text and programs in Latin script 3.9 to 4.8, other scripts up to 7.9, JSON
// 2.5, digits 1.7. Too high an estimate makes agents compact early, too low an estimate overruns the window.
const BYTES_PER_TOKEN = 3.5;
/** The most tokens that Anthropic's rule (width × height ÷ 750, after scaling down) gives for one image. */
const TOKENS_PER_MEDIUM = 1_600;
const MEDIA_SOURCES: readonly unknown[] = ['base64', 'url', 'file'];
const LONGEST = 8 * 1024 * 1024; // the most bytes of a member that is parsed

/** How many UTF-8 bytes a value's strings and names have. An image or file counts as TOKENS_PER_MEDIUM. */
function bytesIn(value: unknown, name: string): number {
  if (typeof value === 'string') return Buffer.byteLength(value);
  if (typeof value !== 'object' || value === null) return 0;
  const { type, data } = value as { readonly type?: unknown; readonly data?: unknown };
  const isMedium = name === 'source' && MEDIA_SOURCES.includes(type);
  let bytes = isMedium ? TOKENS_PER_MEDIUM * BYTES_PER_TOKEN - bytesIn(data, '') : 0;
  for (const [each, member] of Object.entries(value)) {
    bytes += (Array.isArray(value) ? 0 : Buffer.byteLength(each)) + bytesIn(member, each);
  }
  return bytes;
}

/** Estimates a request of the Messages API. Throws what scanInTurns and modelNamed throw. */
export const tokenEstimateReader = (body: Buffer, { pause }: { readonly pause?: Pause }) =>
  inTurns(estimate(body), pause);

function* estimate(body: Buffer) {
  const { members } = yield* scanInTurns(body);
  modelNamed(memberIn(body, members, 'model'));
  let bytes = 0;
  for (const member of members) {
    const { name, start, end } = member;
    if (name !== 'system' && name !== 'messages' && name !== 'tools') continue;
    const isShort = isParsable(member) && end - start <= LONGEST; // a long member counts in full
    bytes += isShort ? bytesIn(JSON.parse(body.toString('utf8', start, end)), name) : end - start;
    yield;
  }
  return { tokens: Math.ceil(bytes / BYTES_PER_TOKEN) };
}
