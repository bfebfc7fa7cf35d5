/** Runs the three steps of a request in a test: take in, salt, encrypt. */
import type { MessageSealer, RequestCipher } from '../../../lib/envelope/message-cipher.ts';
import { encryptStream } from '../../../lib/pipeline/encrypt-stream.ts';
import { injectSalt, type SaltedBody } from '../../../lib/pipeline/inject-salt.ts';
import { type BodyReader, bodyReader, type ParsedBody } from '../../../lib/pipeline/request-body.ts';
import { PLAIN_MEMBERS } from './endpoints.ts';

/** Reads the body of an endpoint that takes JSON objects; by default that of chat, without a salt. */
export const jsonBody = ({
  plain: requestPlain = PLAIN_MEMBERS.C as ReadonlySet<string>,
  id = 'chat' as 'chat' | 'completions' | 'messages',
  salted = false,
} = {}): BodyReader => bodyReader({ id, codec: 'json', requestPlain, salted }, undefined)!;

export type JsonEndpoint = NonNullable<Parameters<typeof jsonBody>[0]>;

/** What takes in a transcription form of that content type. */
export const formBodyOf = (
  contentType: string | undefined,
  requestPlain: ReadonlySet<string> = PLAIN_MEMBERS.T,
): BodyReader =>
  bodyReader({ id: 'transcription', codec: 'multipart', requestPlain, salted: false }, contentType)!;

/** What takes in a body of any kind. */
export const rawBodyOf = (): BodyReader =>
  bodyReader(
    { id: 'unstructured', codec: 'raw', requestPlain: PLAIN_MEMBERS.NONE, salted: false },
    undefined,
  )!;

/** The first step at once. */
export function takeIn(read: BodyReader, text: string | Uint8Array): ParsedBody {
  const parsed = read(Buffer.from(text), {});
  if (parsed instanceof Promise) throw new Error('without a pause, a body is read at once');
  return parsed;
}

/** The first two steps. */
export const prepare = (read: BodyReader, text: string | Uint8Array, sharedSalt?: string): SaltedBody =>
  injectSalt(takeIn(read, text), { shared: sharedSalt });

/** All bytes of an upload; slices are copied, because their memory is used again. */
export async function bytesOf(stream: Uint8Array | AsyncIterable<Uint8Array>): Promise<Buffer> {
  if (stream instanceof Uint8Array) return Buffer.from(stream);
  const slices: Buffer[] = [];
  for await (const slice of stream) slices.push(Buffer.from(slice));
  return Buffer.concat(slices);
}

/** What an encrypted body needs of a cipher. */
export type Sealing = Pick<RequestCipher, 'seal' | 'sealedLength'>;

/** The messages of these plaintexts, as text. */
export const sealedMessages = (cipher: RequestCipher, ...plaintexts: readonly Uint8Array[]): string[] =>
  cipher.seal(plaintexts).map((message, i) => {
    if (typeof message === 'string') return message;
    const plaintext = plaintexts[i]!;
    const hex = Buffer.alloc(2 * plaintext.length);
    const half = (plaintext.length >> 1) & -16; // pieces are whole blocks
    message.update(plaintext.subarray(0, half), hex, 0);
    message.update(plaintext.subarray(half), hex, 2 * half);
    return message.head + hex.toString('latin1') + message.final();
  });

/** The cipher, whose sealers pass each piece of a long plaintext by `seen` before they seal it. */
export function watched(cipher: Sealing, seen: (plaintext: Uint8Array) => void): Sealing {
  const watch = (sealer: MessageSealer): MessageSealer => ({
    ...sealer,
    update(plaintext, target, at) {
      seen(plaintext);
      sealer.update(plaintext, target, at);
    },
  });
  return {
    sealedLength: (bytes) => cipher.sealedLength(bytes),
    seal: (plaintexts) =>
      cipher.seal(plaintexts).map((each) => (typeof each === 'string' ? each : watch(each))),
  };
}

/** The body as it goes to the service. */
export const sealText = async (body: SaltedBody, cipher: RequestCipher): Promise<string> =>
  (await bytesOf(encryptStream(body, cipher).body)).toString('utf8');
