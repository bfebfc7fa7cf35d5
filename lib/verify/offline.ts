/** Verifies what is in files, and touches nothing but these files. */
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { readTrustRoots } from '../config/trust-roots.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { parseCollateral, storedCollateral } from './collateral-file.ts';
import {
  readDocument,
  readInput,
  readManifest,
  readNonce,
  readSecretMessages,
  unusable,
} from './exchange-files.ts';
import type { OfflineRequest } from './flags.ts';
import { type Judgement, judge, notJudged, type Subject } from './judge.ts';

/** Files that cannot be used are a judgement as well; rejects only for defects of our own. */
export async function verifyFiles(request: OfflineRequest, now: Date): Promise<Judgement> {
  const at = request.at ?? now;
  const rootsKind = request.roots === undefined ? 'vendor' : 'custom';
  let subject: Subject;
  try {
    const { secret } = request;
    const nonce = readNonce(request.nonce);
    const messages = secret && readSecretMessages(secret.request, secret.response, nonce);
    subject = {
      document: readDocument(request.evidence, nonce),
      nonce,
      manifest: readManifest(request.manifest),
      roots: request.roots === undefined ? PRODUCTION_ROOTS : rootsIn(request.roots),
      rootsKind,
      collateral: collateralIn(request.collateral),
      at,
      secret: messages && (async () => messages),
      live: false,
    };
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    return notJudged(thrown, { at, roots: rootsKind, manifestSha256: undefined });
  }
  return judge(subject);
}

function rootsIn(directory: string): Subject['roots'] {
  try {
    return readTrustRoots(directory, { flag: '--roots', others: 'ignored' });
  } catch (thrown) {
    throw new PrivatemodeError('verify_input_invalid', asPrivatemodeError(thrown).message, { cause: thrown });
  }
}

function collateralIn(path: string | undefined): Subject['collateral'] {
  if (path === undefined) return storedCollateral({}, 'there is no --collateral file: it');
  return storedCollateral(
    parseCollateral(readInput(path), (words) => unusable(path, words)),
    path,
  );
}
