/** Names of top-level members: how they are decoded, and which the service can address. */

// The service finds members with a path library; these prefixes mean something else to it (inference.md 5.4).
const UNADDRESSABLE =
  /^$|[|\\]|^[{[]|^:[0-9]|^@(?:pretty|ugly|reverse|this|flatten|join|valid|keys|values|tostr|fromstr|group|dig)(?:$|:)/;

/** Whether the service can find a member of that (decoded) name (inference.md 5.4). */
export const isAddressable = (name: string): boolean => !UNADDRESSABLE.test(name);

/**
 * The name between its quotes, valid UTF-8 and with valid escapes, decoded. A lone surrogate becomes U+FFFD,
 * as the service decodes it: two names that differ only there are one name.
 */
export function decodeMemberName(raw: Uint8Array): string {
  const text = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString('utf8');
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string).toWellFormed() : text;
}
