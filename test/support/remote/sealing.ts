/** Runs the three steps of a request in a test: take in, salt, encrypt. */
import type { MessageSealer, RequestCipher } from '../../../lib/envelope/message-cipher.ts';
import { encryptStream } from '../../../lib/pipeline/encrypt-stream.ts';
import { injectSalt, type SaltedBody } from '../../../lib/pipeline/inject-salt.ts';
import { createRequestBody, type ParsedBody, type RequestBody } from '../../../lib/pipeline/request-body.ts';
import { PLAIN_MEMBERS } from './plain-members.ts';

export interface JsonEndpoint {
  /** Default those of chat and completions. */
  readonly plain?: ReadonlySet<string>;
  readonly id?: 'chat' | 'completions';
  /** Default false. */
  readonly salted?: boolean;
}

/** Receives the body of an endpoint that takes JSON objects. */
export function jsonBody({
  plain = PLAIN_MEMBERS.C,
  id = 'chat',
  salted = false,
}: JsonEndpoint = {}): RequestBody {
  return createRequestBody({ id, codec: 'json', requestPlain: plain, salted }, undefined)!;
}

/** What takes in a transcription form of that content type. */
export function formBodyOf(
  contentType: string | undefined,
  plain: ReadonlySet<string> = PLAIN_MEMBERS.T,
): RequestBody {
  const endpoint = { id: 'transcription', codec: 'multipart', requestPlain: plain, salted: false } as const;
  return createRequestBody(endpoint, contentType)!;
}

/** What takes in a body of any kind. */
export function rawBodyOf(): RequestBody {
  const endpoint = {
    id: 'unstructured',
    codec: 'raw',
    requestPlain: new Set<string>(),
    salted: false,
  } as const;
  return createRequestBody(endpoint, undefined)!;
}

/** The first step at once; throws where the body is a form, which takes a while. */
export function takeIn(body: RequestBody, chunks: Iterable<Uint8Array>): ParsedBody {
  for (const chunk of chunks) body.feed(chunk);
  const parsed = body.finish();
  if (parsed instanceof Promise) throw new Error('a form is not parsed at once');
  return parsed;
}

/** The first two steps. */
export const prepare = (body: RequestBody, chunks: Iterable<Uint8Array>, sharedSalt?: string): SaltedBody =>
  injectSalt(takeIn(body, chunks), { shared: sharedSalt });

/** All bytes of a stream; slices are copied, because their memory is used again. */
export async function bytesOf(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const slices: Buffer[] = [];
  for await (const slice of stream) slices.push(Buffer.from(slice));
  return Buffer.concat(slices);
}

/** What a sealer makes of a plaintext, given in pieces: the whole message. */
export function sealedMessage(sealer: MessageSealer, ...pieces: readonly Uint8Array[]): string {
  const hex = pieces.map((piece) => {
    const target = Buffer.alloc(2 * piece.length);
    sealer.update(piece, target, 0);
    return target;
  });
  return Buffer.concat([sealer.head(), ...hex, sealer.final()]).toString('latin1');
}

/** The cipher, whose sealers pass each piece of a long plaintext by `seen` before they seal it. */
export function watched(cipher: RequestCipher, seen: (plaintext: Uint8Array) => void): RequestCipher {
  const watch = (sealer: MessageSealer): MessageSealer => ({
    ...sealer,
    update(plaintext, target, at) {
      seen(plaintext);
      sealer.update(plaintext, target, at);
    },
  });
  return {
    ...cipher,
    seal: () => watch(cipher.seal()),
    sealAll: (plaintexts) => cipher.sealAll(plaintexts).map((each) => ('head' in each ? watch(each) : each)),
  };
}

/** The body as it goes to the service. */
export const sealText = async (body: SaltedBody, cipher: RequestCipher): Promise<string> =>
  (await bytesOf(encryptStream(body, cipher).stream)).toString('utf8');
