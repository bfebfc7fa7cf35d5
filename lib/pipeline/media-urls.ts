/**
 * The service refuses image URLs that are neither https nor data, and every audio or video URL, and its
 * refusal quotes the URL, in clear, to the gateway (inference.md 5.6 and 14.22). So they are refused here.
 */
import { PrivatemodeError } from '../errors.ts';
import type { ByteChain } from './byte-chain.ts';
import type { JsonIndex } from './json-index.ts';
import { NESTED_IMAGE, NESTED_MEDIA } from './media-part.ts';
import { createMediaScan } from './media-scan.ts';

export interface MediaUrlCheck {
  /** To be called after the index took a chunk. */
  advance(): void;
  /** To be called when the index is complete. Throws media_url_refused, without the URL. */
  finish(): void;
}

/** Checks the content parts of the `messages` member, those of tool results included, while it arrives. */
export function createMediaUrlCheck(chain: ByteChain, index: JsonIndex): MediaUrlCheck {
  const scan = createMediaScan();
  let done = 0; // members dealt with
  let fed = 0; // absolute position up to which the member was scanned
  const take = (start: number, end: number): void => {
    for (const slice of chain.slices(Math.max(fed, start), end)) scan.feed(slice);
    fed = end;
  };
  return {
    advance() {
      for (; done < index.members.length; done++) {
        const { name, start, end } = index.members[done]!;
        if (name === 'messages') take(start, end);
      }
      if (index.current?.name === 'messages') take(index.current.start, chain.length);
    },
    finish() {
      if ((scan.verdict() & NESTED_IMAGE) !== 0) {
        throw new PrivatemodeError('media_url_refused', 'an image URL is neither https nor data');
      }
      if ((scan.verdict() & NESTED_MEDIA) !== 0) {
        throw new PrivatemodeError('media_url_refused', 'the service takes no audio or video URLs');
      }
    },
  };
}
