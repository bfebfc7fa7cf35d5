/** What a request must meet, and what is changed for the model (docs/protocol/inference.md 5.6, 8). */
import { skipString, type TopLevel, topLevelOf, valuesAt, withMember } from './json-text.ts';
import { isAcceptedImageUrl } from './media-url.ts';
import { Rejection } from './rejection.ts';
import { isObject, type JsonObject, type OpenedBody, type OpenedRequest, saltText } from './request.ts';

const MIN_SALT_BYTES = 32;

/** Where a member's value begins. The server reads the first of repeated members, JSON.parse the last. */
const firstOf = ({ kind, spans }: TopLevel, member: string): number | undefined =>
  kind === 'object' ? spans.find(({ name }) => name === member)?.start : undefined;

/** The string that begins at `start`; undefined for values of other kinds. */
function stringAt(text: string, start: number | undefined): string | undefined {
  if (start === undefined || text[start] !== '"') return undefined;
  return JSON.parse(text.slice(start, skipString(text, start))) as string;
}

/** The `url` member of the object that begins at `start`. */
const heldUrl = (text: string, start: number | undefined): string | undefined =>
  start === undefined ? undefined : stringAt(text, firstOf(valuesAt(text, start), 'url'));

// The real server quotes the refused URL, which is user content, in an unencrypted response
// (docs/protocol/inference.md 14.22).
function checkPart(text: string, part: TopLevel): void {
  for (const member of ['audio_url', 'video_url']) {
    const start = firstOf(part, member);
    const url = stringAt(text, start) ?? heldUrl(text, start);
    if (url !== undefined) throw new Rejection(500, `${member} is not allowed: ${url}`);
  }
  const image = firstOf(part, 'image_url');
  // OpenAI uses `image_url.url`, or `image_url` as a plain string; the messages API uses `source.url`.
  const images = [stringAt(text, image) ?? heldUrl(text, image), heldUrl(text, firstOf(part, 'source'))];
  for (const url of images) {
    if (url !== undefined && !isAcceptedImageUrl(url))
      throw new Rejection(500, `image URL is not allowed: ${url}`);
  }
}

/** Checks content parts: in `messages[].content[]`, and inside tool results again. */
function checkMedia(text: string, start: number | undefined): void {
  if (start === undefined || text[start] !== '[') return;
  for (const element of valuesAt(text, start).spans) {
    const part = valuesAt(text, element.start);
    if (part.kind !== 'object') continue;
    checkPart(text, part);
    checkMedia(text, firstOf(part, 'content'));
  }
}

/** Refuses the requests that the server refuses. Throws Rejection. */
export function checkAdmission({ endpoint, body }: OpenedRequest): void {
  if (body.kind !== 'json') return;
  if (endpoint.salted && Buffer.byteLength(saltText(body)) < MIN_SALT_BYTES)
    throw new Rejection(500, 'cache_salt must be at least 32 characters long');
  checkMedia(body.text, firstOf(topLevelOf(body.text), 'messages'));
}

/** The body for the model. For streams of text, usage in every chunk is forced on; all other bytes stay. */
export function forModel({ endpoint, body, stream }: OpenedRequest): OpenedBody {
  if (!stream || body.kind !== 'json' || !['chat', 'completions'].includes(endpoint.name)) return body;
  const options = isObject(body.value['stream_options']) ? body.value['stream_options'] : {};
  const forced = JSON.stringify({ ...options, include_usage: true, continuous_usage_stats: true });
  const text = withMember(body.text, 'stream_options', forced);
  return { kind: 'json', text, value: JSON.parse(text) as JsonObject };
}
