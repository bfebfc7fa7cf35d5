/**
 * Every fault that `npm run mutation` plants. test/faults/mutation-check.test.ts holds that they are spread
 * over the rooms of lib by size.
 */
import { ATTESTATION } from './attestation.ts';
import { CONDITIONS } from './conditions.ts';
import type { Mutation } from './mutation.ts';
import { PROGRAM } from './program.ts';
import { REQUESTS } from './requests.ts';
import { RESPONSES } from './responses.ts';
import { TEAM } from './team.ts';
import { TRUST } from './trust.ts';

export const MUTATIONS: readonly Mutation[] = [
  ATTESTATION,
  REQUESTS,
  RESPONSES,
  TRUST,
  TEAM,
  PROGRAM,
  CONDITIONS,
].flat();
