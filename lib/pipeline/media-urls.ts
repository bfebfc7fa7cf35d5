/**
 * The service refuses image URLs that are neither https nor data, and every audio or video URL, and its
 * refusal quotes the URL, in clear, to the gateway (inference.md 5.6 and 14.22). So they are refused here.
 */
import { PrivatemodeError } from '../errors.ts';
import { NESTED_IMAGE, NESTED_MEDIA } from './media-part.ts';
import type { MediaScan } from './media-scan.ts';

/** Throws media_url_refused, without the URL, where the scan of the complete messages found one. */
export function checkMediaUrls({ verdict }: MediaScan): void {
  const found = verdict();
  if ((found & NESTED_IMAGE) !== 0) {
    throw new PrivatemodeError('media_url_refused', 'an image URL is neither https nor data');
  }
  if ((found & NESTED_MEDIA) !== 0) {
    throw new PrivatemodeError('media_url_refused', 'the service takes no audio or video URLs');
  }
}
