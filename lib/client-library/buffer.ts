/** Node's Buffer for runtimes without it: the portable build puts it where the code names `Buffer`. */
export { Buffer } from 'buffer/';

export function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
