/** JSON request bodies: the values are sealed in place, every other byte stays (docs/protocol/inference.md 5). */
import type { RequestCipher } from '../../envelope/request-cipher.ts';
import type { Piece } from '../sealed-slices.ts';
import type { ShardKeyScan } from '../shard-key.ts';
import type { ByteChain } from './byte-chain.ts';
import type { JsonMember } from './json-index.ts';
import { encryptionOrder } from './member-names.ts';

/** A member to be put into the body in place of the bytes from `start` to `end`. */
export interface MemberEdit {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  /** What goes before the value: nothing, or a comma, the name and a colon. */
  readonly prefix: string;
  /** JSON text of the value. */
  readonly value: Buffer;
}

/** A complete JSON object, and where its members stand in it. */
export interface JsonContent {
  readonly kind: 'json';
  readonly chain: ByteChain;
  readonly members: readonly JsonMember[];
  /** Position of the first byte inside the object. */
  readonly bodyStart: number;
  /** The members that are not encrypted. */
  readonly plain: ReadonlySet<string>;
  /** Where the endpoint has a salt, which has yet to be injected. */
  readonly shardKeyScan?: ShardKeyScan | undefined;
  /** Gives the object its salt; its name is not in `plain`. */
  readonly edit?: MemberEdit | undefined;
}

/**
 * The object with its edit applied, and the members that are not in `plain` to be sealed. Sequence numbers go by name
 * (docs/protocol/inference.md 5.2), the text keeps its order.
 */
export function memberPieces(
  { chain, members, plain, edit }: JsonContent,
  cipher: RequestCipher,
): readonly Piece[] {
  const values = members
    .filter(({ name }) => name !== edit?.name)
    .map(({ name, start, end }) => ({ name, start, end, prefix: '', plaintext: chain.slices(start, end) }));
  if (edit !== undefined) values.push({ ...edit, plaintext: [edit.value] });
  const sealed = encryptionOrder(values, plain).map((value) => ({ ...value, sealer: cipher.seal() }));
  const pieces: Piece[] = [];
  let position = 0;
  for (const { start, end, prefix, plaintext, sealer } of sealed.sort((a, b) => a.start - b.start)) {
    pieces.push({ bytes: [...chain.slices(position, start), Buffer.from(prefix)] });
    pieces.push({ bytes: plaintext, sealer });
    position = end;
  }
  pieces.push({ bytes: chain.slices(position, chain.length) });
  return pieces;
}
