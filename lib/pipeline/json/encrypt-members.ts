/** JSON request bodies: the values are sealed in place, every other byte stays (inference.md section 5). */
import type { RequestCipher } from '../../envelope/request-cipher.ts';
import { type Piece, sealedBody } from '../encrypt-body.ts';
import { type MemberEdit, randomSalt, saltEdit } from '../inject-salt.ts';
import { checkMediaUrls, createMediaScan } from '../media/media-scan.ts';
import type { RequestBodyStage, SealedBody } from '../request-body.ts';
import { type ByteChain, createByteChain } from './byte-chain.ts';
import { createJsonIndex, type JsonMember } from './json-index.ts';
import { encryptionOrder } from './member-order.ts';
import { checkModelName } from './model-name.ts';
import { checkPlainValues, choicesPerPrompt, usageInOptions } from './plain-values.ts';
import { createPromptCount, type PromptCount } from './prompt-count.ts';
import { createShardKeyScan } from './shard-key.ts';

export interface JsonSealOptions {
  /** The members that stay plain: one of `PLAIN_MEMBERS`. */
  readonly plain: ReadonlySet<string>;
  /** For completions, where each prompt of the request has choices of its own. Default false. */
  readonly prompts?: boolean;
  /**
   * For chat, completions and messages, whose bodies the service inspects (5.6): media URLs are checked, the
   * body gets a salt where it has none, and a shard key where a salt is effective. `configured` undefined
   * means a fresh random salt per request, and no shard key for it.
   */
  readonly salt?: { readonly configured: string | undefined; readonly random?: () => string };
}

/** A value of the body that is to be sealed: where it stands, and its plaintext. */
interface Value {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  readonly prefix: string;
  readonly plaintext: readonly Uint8Array[];
}

/**
 * Seals the members of an indexed object that are not in `plain`, after applying `edit`. Sequence numbers go
 * by name (5.2), the text keeps its order. The edited member must not be in `plain`.
 */
export function sealMembers(
  chain: ByteChain,
  members: readonly JsonMember[],
  plain: ReadonlySet<string>,
  cipher: RequestCipher,
  edit?: MemberEdit,
): SealedBody {
  const values: Value[] = members
    .filter(({ name }) => name !== edit?.name)
    .map(({ name, start, end }) => ({ name, start, end, prefix: '', plaintext: chain.slices(start, end) }));
  if (edit !== undefined) values.push({ ...edit, plaintext: [edit.value] });
  const sealers = new Map(encryptionOrder(values, plain).map((value) => [value, cipher.seal()]));
  const pieces: Piece[] = [];
  let position = 0;
  for (const value of values.sort((a, b) => a.start - b.start)) {
    const sealer = sealers.get(value);
    if (sealer === undefined) continue;
    pieces.push({ bytes: [...chain.slices(position, value.start), Buffer.from(value.prefix)] });
    pieces.push({ bytes: value.plaintext, sealer });
    position = value.end;
  }
  pieces.push({ bytes: chain.slices(position, chain.length) });
  return sealedBody(cipher, pieces);
}

/** Bytes of JSON text: no model name is longer, even with every byte escaped (256 times `\u0041`). */
const MODEL_TEXT_BYTES = 2048;

/** The string value of the model, or its absence, or null where it is something else or far too long. */
export function modelValue(chain: ByteChain, member: JsonMember | undefined): string | null | undefined {
  if (member === undefined) return undefined;
  if (member.kind !== 'string' || member.end - member.start > MODEL_TEXT_BYTES) return null;
  return JSON.parse(chain.bytes(member.start, member.end).toString('utf8')) as string;
}

/** The members of a completions request that hold prompts. */
const PROMPTS = ['prompt', 'prompt_embeds'] as const;

/** How many prompts a request has; one without any is taken for one. */
const promptsIn = (counts: readonly PromptCount[]): number =>
  counts.reduce((sum, { count }) => sum + count(), 0) || 1;

/**
 * Collects and indexes a JSON body as it arrives. Throws invalid_json, duplicate_member,
 * unsupported_member_name, salt_too_short and context_too_large from `feed` or `finish`; missing_model,
 * invalid_model, invalid_plain_member and media_url_refused from `finish`.
 */
export function createJsonSealer(options: JsonSealOptions): RequestBodyStage {
  const { plain, prompts = false, salt } = options;
  const chain = createByteChain();
  const media = salt && createMediaScan();
  const promptCounts = prompts ? PROMPTS.map(createPromptCount) : [];
  const index = createJsonIndex({ visitors: media === undefined ? promptCounts : [media, ...promptCounts] });
  const shardKeyScan = salt && createShardKeyScan(chain, index, salt.configured);

  return {
    feed(chunk) {
      chain.push(chunk);
      index.feed(chunk);
      shardKeyScan?.advance();
    },
    finish() {
      const members = index.finish();
      const named = (wanted: string) => members.find(({ name }) => name === wanted);
      const model = checkModelName(modelValue(chain, named('model')));
      checkPlainValues(chain, members, plain);
      if (media !== undefined) checkMediaUrls(media);
      const shardKey = shardKeyScan?.finish();
      const edit = salt && saltEdit(chain, index, () => salt.configured ?? (salt.random ?? randomSalt)());
      return {
        model,
        shardKey,
        streaming: named('stream')?.kind === 'true',
        choices: plain.has('n') ? choicesPerPrompt(chain, named('n')) * promptsIn(promptCounts) : 1,
        format: undefined,
        usage: plain.has('stream_options') ? usageInOptions(chain, named('stream_options')) : 'every',
        seal: (cipher) => sealMembers(chain, members, plain, cipher, edit),
      };
    },
  };
}
