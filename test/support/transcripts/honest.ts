/** Every transcript there is. */
import { CHAT } from './chat.ts';
import { COMPLETIONS } from './completions.ts';
import { EMBEDDINGS } from './embeddings.ts';
import { ERRORS } from './errors.ts';
import { MESSAGES } from './messages.ts';
import type { Transcript } from './transcript.ts';
import { TRANSCRIPTION } from './transcription.ts';
import { UNSTRUCTURED } from './unstructured.ts';

export const HONEST: readonly Transcript[] = [
  ...CHAT,
  ...COMPLETIONS,
  ...MESSAGES,
  ...EMBEDDINGS,
  ...TRANSCRIPTION,
  ...UNSTRUCTURED,
  ...ERRORS,
];
