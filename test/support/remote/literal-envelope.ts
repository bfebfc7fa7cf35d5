/**
 * The envelope and the sealing rules of docs/protocol/inference.md as the simulator has written them, message
 * by message and body by body. The simulator shares no code with lib/envelope, so tests of lib seal and open
 * with this; test/vectors/inference keeps both aligned with the real service.
 */
import {
  openMessage,
  type Protection,
  parseMessage,
  sealMessage,
} from '../../../simulator/inference/envelope.ts';
import { inSequenceOrder } from '../../../simulator/inference/json-text.ts';

export interface LiteralExchange {
  readonly id: string;
  readonly secret: Protection['key'];
  readonly nonce: Buffer;
}

/** Section 4, either direction. */
export const literalSeal = (
  of: LiteralExchange,
  sequence: number,
  iv: Buffer,
  plaintext: Uint8Array,
): string => sealMessage({ secretId: of.id, key: of.secret, nonce: of.nonce }, sequence, iv, plaintext);

/** Section 4, the other side; throws where the message does not authenticate. */
export const literalOpen = (
  { secret: key, nonce }: LiteralExchange,
  sequence: number,
  text: string,
): Buffer => openMessage({ key, nonce }, sequence, parseMessage(text));

/** Section 5.2: names without the plain ones, in the order of their sequence numbers. */
export function literalOrder(names: readonly string[], plain: readonly string[]): string[] {
  const sealed = names.filter((name) => !plain.includes(name));
  return inSequenceOrder(sealed.map((name) => ({ name }))).map(({ name }) => name);
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

/** A body as a list of members → the sealed body, by sections 5.1 and 5.2. */
export function literalSealObject(
  exchange: LiteralExchange,
  members: readonly LiteralMember[],
  plain: readonly string[],
  ivs: () => Buffer,
  firstSequence = 0,
): string {
  const names = members.map(({ name }) => name);
  const sealed = new Map(
    literalOrder(names, plain).map((name, index) => {
      const raw = members.find((member) => member.name === name)?.raw ?? '';
      return [name, literalSeal(exchange, firstSequence + index, ivs(), Buffer.from(raw))];
    }),
  );
  return literalText(members.map((member) => ({ ...member, raw: sealed.get(member.name) ?? member.raw })));
}

/** The server's side of section 5: a sealed body → each member's raw text by decoded name. */
export function literalUnsealObject(
  exchange: LiteralExchange,
  body: string,
  plain: readonly string[],
): Map<string, string> {
  const parsed = JSON.parse(body) as Record<string, string>;
  const order = literalOrder(Object.keys(parsed), plain);
  return new Map(
    order.map((name, sequence) => [name, literalOpen(exchange, sequence, parsed[name] ?? '').toString()]),
  );
}
