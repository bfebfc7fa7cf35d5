/** From here on it costs less than what it saves. */
const WORTH_RELEASING = 4 * 1024;

/**
 * Frees bytes that nobody reads any more, now: the buffer is empty afterwards. Left to the collector, the prompts and
 * ciphertexts of a few uploads bring on a full collection, for which every stream waits. Short ones, and parts of something
 * larger, are left to it. Not for what the network or the disk is still working on: they would read what is freed.
 */
export function releaseMemory({ buffer, length }: Uint8Array): void {
  if (length < WORTH_RELEASING || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
