/**
 * The envelope and the sealing rules of docs/protocol/inference.md, written a second time: slow, literal,
 * whole bodies as strings, JSON.parse, no streaming. It shares no code with lib/ or the simulator, and tests
 * of both seal and open with it; property tests and test/vectors/inference keep it aligned with them.
 */
import { type CipherKey, createCipheriv, createDecipheriv } from 'node:crypto';

export interface LiteralExchange {
  readonly id: string;
  readonly secret: CipherKey;
  readonly nonce: Buffer;
}

const aad = (nonce: Buffer, sequence: number): Buffer => {
  const counter = Buffer.alloc(4);
  counter.writeUInt32LE(sequence);
  return Buffer.concat([nonce, counter]);
};

/** Section 4, either direction. */
export function literalSeal(
  exchange: LiteralExchange,
  sequence: number,
  iv: Buffer,
  plaintext: Uint8Array,
): string {
  const cipher = createCipheriv('aes-256-gcm', exchange.secret, iv);
  cipher.setAAD(aad(exchange.nonce, sequence));
  const body = Buffer.concat([cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
  const parts = [exchange.id, ...[exchange.nonce, iv, body].map((bytes) => bytes.toString('hex'))];
  return `"${parts.join(':')}"`;
}

/** Section 4, the server's side of a request. */
export function literalOpen(exchange: LiteralExchange, sequence: number, message: string): Buffer {
  const [, , iv, body] = message.slice(1, -1).split(':') as [string, string, string, string];
  const bytes = Buffer.from(body, 'hex');
  const decipher = createDecipheriv('aes-256-gcm', exchange.secret, Buffer.from(iv, 'hex'));
  decipher.setAAD(aad(exchange.nonce, sequence));
  decipher.setAuthTag(bytes.subarray(-16));
  return Buffer.concat([decipher.update(bytes.subarray(0, -16)), decipher.final()]);
}

/** Section 5.2: names without the plain ones, by the bytes of the escaped name. */
export function literalOrder(names: readonly string[], plain: readonly string[]): string[] {
  const escaped = (name: string) =>
    [...name].map((char) => (['.', '?', '*'].includes(char) ? `\\${char}` : char)).join('');
  return names
    .filter((name) => !plain.includes(name))
    .sort((a, b) => Buffer.compare(Buffer.from(escaped(a)), Buffer.from(escaped(b))));
}

/** One member as source text: how its name is written, its raw value, blanks around. */
export interface LiteralMember {
  readonly name: string;
  readonly writtenName: string;
  readonly raw: string;
}

/** The members of an object as JSON.stringify writes them. */
export const literalMembers = (object: object): LiteralMember[] =>
  Object.entries(object).map(([name, value]) => ({
    name,
    writtenName: JSON.stringify(name),
    raw: JSON.stringify(value),
  }));

/** The members as the text of an object, with blanks that no parser minds. */
export const literalText = (members: readonly Omit<LiteralMember, 'name'>[]): string =>
  `{${members.map(({ writtenName, raw }) => `${writtenName}: ${raw}`).join(' , ')}}`;

/** A body as a list of members → the sealed body, by the letter of sections 5.1 and 5.2. */
export function literalSealObject(
  exchange: LiteralExchange,
  members: readonly LiteralMember[],
  plain: readonly string[],
  ivs: () => Buffer,
  firstSequence = 0,
): string {
  const sealed = new Map<string, string>();
  literalOrder(
    members.map(({ name }) => name),
    plain,
  ).forEach((name, index) => {
    const { raw } = members.find((member) => member.name === name)!;
    sealed.set(name, literalSeal(exchange, firstSequence + index, ivs(), Buffer.from(raw)));
  });
  return literalText(members.map((member) => ({ ...member, raw: sealed.get(member.name) ?? member.raw })));
}

/** The server's side of section 5: a sealed body → each member's raw text by decoded name. */
export function literalUnsealObject(
  exchange: LiteralExchange,
  body: string,
  plain: readonly string[],
): Map<string, string> {
  const parsed = JSON.parse(body) as Record<string, unknown>;
  const opened = new Map<string, string>();
  literalOrder(Object.keys(parsed), plain).forEach((name, sequence) => {
    opened.set(name, literalOpen(exchange, sequence, `"${parsed[name] as string}"`).toString());
  });
  return opened;
}
