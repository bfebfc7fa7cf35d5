/** The floor: what the cryptography alone costs on the same bytes, without sockets, streams or JSON. */
import { createCipheriv, createDecipheriv, createSecretKey, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect, type TLSSocket } from 'node:tls';
import { modelOf, OPEN_PROTECTION, OPEN_SECRET, sealedEvents } from './fixtures.ts';
import { monotonicMs } from './processes.ts';

export type LimitRequest =
  | { readonly type: 'open'; readonly events: number }
  | { readonly type: 'upload'; readonly bytes: number };
export type LimitAnswer =
  /** CPU microseconds per event. */
  | { readonly type: 'opened'; readonly perEvent: number }
  /** When sealing began, as `monotonicMs` tells it. */
  | { readonly type: 'sent'; readonly from: number };

const [port, caFile] = process.argv.slice(2) as [string, string];
const key = createSecretKey(OPEN_SECRET.key);
const OPTIONS = { authTagLength: 16 };
const MESSAGE = /"[A-Za-z0-9+/]{43}=:[0-9a-f]{24}:[0-9a-f]{24}:[0-9a-f]+"/g;
const SAMPLES = 200;
const SLICE = 256 * 1024;

/** The messages of some events, in the order of their numbers: iv, then ciphertext and tag, both hex. */
const messages = sealedEvents(SAMPLES, OPEN_PROTECTION).map((event) => {
  const [object, created, model, choices] = event.toString('latin1').match(MESSAGE) as string[];
  return [choices, created, model, object].map((text) => {
    const [, , iv, body] = (text as string).slice(1, -1).split(':') as [string, string, string, string];
    return { iv, body };
  });
});

function open(events: number): number {
  const aad = Buffer.alloc(16);
  OPEN_SECRET.nonce.copy(aad);
  const before = process.cpuUsage();
  for (let done = 0; done < events; done++) {
    const event = done % SAMPLES;
    const members = messages[event]!;
    for (let member = 0; member < 4; member++) {
      const { iv, body } = members[member]!;
      const bytes = Buffer.from(body, 'hex');
      aad.writeUInt32LE(4 * event + member, 12);
      const decipher = createDecipheriv('aes-256-gcm', key, Buffer.from(iv, 'hex'), OPTIONS);
      decipher.setAAD(aad);
      decipher.setAuthTag(bytes.subarray(-16));
      decipher.update(bytes.subarray(0, -16));
      decipher.final();
    }
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / events;
}

let socket: Promise<TLSSocket> | undefined;
const connected = (): Promise<TLSSocket> => {
  socket ??= new Promise((resolve, reject) => {
    const made = connect({
      port: Number(port),
      host: '127.0.0.1',
      servername: 'localhost',
      ca: readFileSync(caFile),
    });
    made.setNoDelay(true); // or the tail of a body waits for an acknowledgement
    made.once('secureConnect', () => resolve(made)).once('error', reject);
    made.once('close', () => {
      socket = undefined; // the upstream does not keep it for ever
    });
    made.resume();
  });
  return socket;
};

/** Seals that many bytes slice by slice, as one message, and writes them to TLS; the reader sets the pace. */
async function upload(bytes: number): Promise<number> {
  const plaintext = randomBytes(bytes);
  const tls = await connected();
  const prefix = `{"messages":"${OPEN_SECRET.id}:${OPEN_SECRET.nonce.toString('hex')}:${'0'.repeat(24)}:`;
  const length = prefix.length + 2 * (bytes + 16) + 2;
  const from = monotonicMs();
  tls.write(
    `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\n` +
      `Privatemode-Target-Model: ${modelOf({ events: 1 })}\r\n\r\n${prefix}`,
  );
  const cipher = createCipheriv('aes-256-gcm', key, Buffer.alloc(12), OPTIONS);
  for (let i = 0; i < bytes; i += SLICE) {
    const sealed = cipher.update(plaintext.subarray(i, i + SLICE)).toString('hex');
    if (!tls.write(sealed, 'latin1')) await new Promise((resolve) => tls.once('drain', resolve));
  }
  cipher.final();
  tls.write(`${cipher.getAuthTag().toString('hex')}"}`);
  return from;
}

process.on('message', async (request: LimitRequest) => {
  const answer: LimitAnswer =
    request.type === 'open'
      ? { type: 'opened', perEvent: open(request.events) }
      : { type: 'sent', from: await upload(request.bytes) };
  process.send?.(answer);
});
process.once('disconnect', () => process.exit());
process.send?.({ type: 'ready' });
