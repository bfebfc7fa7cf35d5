/** Every fault that `npm run mutation` plants: those of one or several rooms of lib in each file. */
import { ATTESTATION } from './attestation.ts';
import { CLIENT_LIBRARY } from './client-library.ts';
import { GATEWAY } from './gateway.ts';
import type { Mutation } from './mutation.ts';
import { PIPELINE } from './pipeline.ts';
import { PROGRAM } from './program.ts';
import { RECORDS } from './records.ts';
import { RESPONSES_API } from './responses-api.ts';
import { SESSION } from './session.ts';

export const MUTATIONS: readonly Mutation[] = [
  ATTESTATION,
  SESSION,
  RECORDS,
  PIPELINE,
  RESPONSES_API,
  GATEWAY,
  CLIENT_LIBRARY,
  PROGRAM,
].flat();
