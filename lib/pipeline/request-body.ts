/**
 * Takes in the body of a request, and checks it while it arrives. The next stages are inject-salt.ts and
 * encrypt-body.ts.
 */

import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { CollectedBytes } from './collected-bytes.ts';
import { boundaryOf, type FormParts, readForm } from './form.ts';
import { type ByteChain, createByteChain } from './json/byte-chain.ts';
import { createJsonIndex, type JsonMember } from './json/json-index.ts';
import {
  askedInForm,
  askedInJson,
  createPromptCounts,
  demandRules,
  MAX_DECODED_BYTES,
  type UsageWanted,
} from './json/unencrypted-members.ts';
import { createMediaScan } from './media-scan.ts';
import { createShardKeyScan, type MixSalt, type ShardKeyScan } from './shard-key.ts';
import { createWebToolScan } from './web-tools.ts';

export type { UsageWanted };

/** A request body on its way in: fed as it arrives, ready when it is complete. */
export interface RequestBody<T = ParsedBody> {
  /** Takes the next chunk, by reference. Throws a typed 400 as soon as the body cannot become valid. */
  feed(chunk: Uint8Array): void;
  /**
   * Call it once, after the last chunk. Throws, or rejects with, a typed 400. `hold` reserves memory for what
   * is kept beside the body, or throws.
   */
  finish(hold?: (bytes: number) => void): T | Promise<T>;
}

/** A complete, valid request body in plaintext. */
export interface ParsedBody {
  /** For the target-model header; undefined where the endpoint names none. */
  readonly model: string | undefined;
  /** Whether the body asked for an event stream (`stream` is true). */
  readonly streaming: boolean;
  /** How many choices an honest response has: `n` for each prompt, or 1 if the API has no choices. */
  readonly choices: number;
  /**
   * The `response_format` of a transcription as it was sent, which decides the response's members; else
   * undefined.
   */
  readonly format: string | undefined;
  /** Which chunks of a stream the request asked to have their `usage`. */
  readonly usage: UsageWanted;
  /** The body itself, for the steps that follow. */
  readonly content: JsonContent | FormContent | { readonly kind: 'raw'; readonly bytes: Uint8Array };
}

/** A member to be put into the body in place of the bytes from `start` to `end`. */
export interface MemberEdit {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  /** What goes before the value: nothing, or a comma, the name and a colon. */
  readonly prefix: string;
  /** JSON text of the value, in pieces. */
  readonly value: readonly Uint8Array[];
}

/** The model to which a request for `model` goes instead; undefined if it goes to `model` itself. */
export type Rename = (model: string) => string | undefined;

/** A JSON object, and where its members stand in it. */
export interface JsonContent {
  readonly kind: 'json';
  readonly chain: ByteChain;
  readonly members: readonly JsonMember[];
  /** Position of the first byte inside the object. */
  readonly bodyStart: number;
  /** The members that are not encrypted. */
  readonly plain: ReadonlySet<string>;
  /** What replaces the value of `model`; undefined: it stays. */
  readonly modelEdit?: MemberEdit | undefined;
  /** Undefined if the endpoint has no salt. */
  readonly shardKeyScan?: ShardKeyScan | undefined;
}

/** A form, taken apart. */
export interface FormContent {
  readonly kind: 'form';
  readonly parts: FormParts;
  /** The value fields that are not encrypted. */
  readonly plain: ReadonlySet<string>;
}

/** The part of the endpoint table that says how to receive a body. */
type BodyRules = Pick<Endpoint, 'id' | 'codec' | 'requestPlain' | 'salted'>;

/**
 * Begins to take in a request body of that endpoint; returns undefined if the endpoint takes none.
 * `sharedSalt` must be the same salt that injectSalt gets afterwards, because the shard key of a prompt is
 * hashed under this salt while the body arrives. `mixSalt` replaces a salt that the body brings, and `rename`
 * replaces the model. Throws invalid_multipart if the endpoint takes a form and the content type is not one.
 */
export function createRequestBody(
  endpoint: BodyRules,
  contentType: string | undefined,
  sharedSalt: string | undefined,
  mixSalt?: MixSalt,
  rename?: Rename,
): RequestBody | undefined {
  switch (endpoint.codec) {
    case 'json': {
      const body = createJsonBody(endpoint, sharedSalt, mixSalt, rename);
      const type = NO_JSON.exec(contentType ?? '')?.[0].toLowerCase();
      return type === undefined ? body : notJson(body, type);
    }
    case 'multipart':
      return createFormBody(endpoint, contentType, rename);
    case 'raw':
      return createRawBody();
    case 'none':
      return undefined;
  }
}

/** Content types that are not JSON. Some clients send JSON under them, so it is accepted. */
const NO_JSON =
  /^(?:multipart\/form-data|text\/(?:plain|html|xml|csv)|application\/(?:x-www-form-urlencoded|octet-stream|xml))/i;

/** The same body, but the message of an invalid_json names the content type. */
function notJson({ feed, finish }: RequestBody, type: string): RequestBody {
  const named = <T>(step: () => T): T => {
    try {
      return step();
    } catch (thrown) {
      if (!(thrown instanceof PrivatemodeError) || thrown.code !== 'invalid_json') throw thrown;
      throw new PrivatemodeError(
        'invalid_json',
        `the body is ${type}, and this endpoint takes JSON (Content-Type: application/json)`,
      );
    }
  };
  return { feed: (chunk) => named(() => feed(chunk)), finish: (hold) => named(() => finish(hold)) };
}

/**
 * Indexes a JSON object as it arrives. `feed` throws invalid_json, duplicate_member, unsupported_member_name,
 * salt_too_short and context_too_large; `finish` throws invalid_json, missing_model, invalid_model,
 * invalid_plain_member, media_url_refused and hosted_tool_refused.
 */
function createJsonBody(
  { id, requestPlain: plain, salted }: BodyRules,
  sharedSalt?: string,
  mixSalt?: MixSalt,
  rename?: Rename,
): RequestBody {
  demandRules('json', plain);
  const chain = createByteChain();
  // An endpoint with a salt may take messages, and the service inspects the media URLs in them.
  const media = salted ? createMediaScan() : undefined;
  const prompts = id === 'completions' ? createPromptCounts() : [];
  const webTools = id === 'messages' ? createWebToolScan() : undefined;
  const visitors = [media, webTools, ...prompts].filter((visitor) => visitor !== undefined);
  const index = createJsonIndex({ visitors });
  const shardKeyScan = salted ? createShardKeyScan(chain, index, sharedSalt, mixSalt) : undefined;

  return {
    feed(chunk) {
      chain.push(chunk);
      index.feed(chunk);
      shardKeyScan?.advance();
    },
    finish() {
      const members = index.finish();
      const asked = askedInJson(chain, members, plain, prompts);
      media?.check();
      webTools?.check();
      const { bodyStart } = index;
      const model = rename?.(asked.model);
      const modelEdit = model === undefined ? undefined : valueEdit(members, 'model', model);
      const content = { kind: 'json', chain, members, bodyStart, plain, modelEdit, shardKeyScan } as const;
      return { ...asked, model: model ?? asked.model, format: undefined, content };
    },
  };
}

/** The edit that gives the member `name` the value `text`; undefined if there is no such member. */
export function valueEdit(
  members: readonly JsonMember[],
  name: string,
  text: string,
): MemberEdit | undefined {
  const present = members.find((member) => member.name === name);
  return present && { ...present, prefix: '', value: [Buffer.from(JSON.stringify(text), 'utf8')] };
}

/** The service can encrypt only JSON responses: json, verbose_json, and formats like them that may come. */
const JSON_FORMAT = /json$/;

/**
 * Takes a transcription form apart once it is complete. Throws invalid_multipart if the content type is no
 * form; `finish` throws as readForm does (the service keeps only the first of repeated fields), and
 * unsupported_response_format, missing_model, invalid_model and invalid_plain_member.
 */
function createFormBody(
  { requestPlain: plain }: BodyRules,
  contentType: string | undefined,
  rename?: Rename,
): RequestBody {
  demandRules('multipart', plain);
  const boundary = boundaryOf(contentType);
  const form = new CollectedBytes();
  return {
    feed: (chunk) => form.push(chunk),
    finish() {
      const parts = readForm(form.bytes(), boundary);
      const text = (name: string): string | null | undefined => {
        const bytes = parts.values.get(name);
        if (bytes === undefined) return undefined;
        return bytes.length > MAX_DECODED_BYTES ? null : Buffer.from(bytes).toString('utf8');
      };
      const format = text('response_format');
      if (format === null || (format && !JSON_FORMAT.test(format))) {
        throw new PrivatemodeError('unsupported_response_format', 'only JSON answers can be encrypted');
      }
      const asked = askedInForm(text);
      const model = rename?.(asked.model);
      if (model === undefined) return { ...asked, format, content: { kind: 'form', parts, plain } };
      const values = new Map(parts.values).set('model', Buffer.from(model));
      return { ...asked, model, format, content: { kind: 'form', parts: { ...parts, values }, plain } };
    },
  };
}

/** Collects a body of any kind, which names no model. */
function createRawBody(): RequestBody {
  const body = new CollectedBytes();
  return {
    feed: (chunk) => body.push(chunk),
    finish: () => ({
      model: undefined,
      streaming: false,
      choices: 1,
      format: undefined,
      usage: 'every',
      content: { kind: 'raw', bytes: body.bytes() },
    }),
  };
}
