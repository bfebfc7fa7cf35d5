/**
 * The document of `GET /verification`, which `GET /status` repeats: what protects requests now, and how the
 * proxy has verified the service. docs/verify.md lists its members.
 */
import type { AttestedSession } from '../session/session.ts';
import { chainOfTrust } from '../verdict/chain-of-trust.ts';
import { VERSION } from '../version.ts';

export type VerificationDocument = Readonly<ReturnType<typeof verificationDocument>>;

/**
 * The document at the time `now` (ms since 1970), with times in RFC 3339 in UTC.
 *
 * `verified`: whether an epoch is in force, so that requests may be sent. A failed renewal does not end an
 * epoch. While the proxy stops, `verified` is false, although requests are taken until the port closes.
 * `epoch`: the epoch without its key. Null exactly if `verified` is false. `verdict`: the last verdict, even
 * if it rejects the service; null before the first verdict. `chain`: the links of the chain of trust, in
 * their order.
 */
export function verificationDocument(
  session: Pick<AttestedSession, 'current' | 'standing' | 'lastVerdict'>,
  { protocol, now }: { readonly protocol: string; readonly now: number },
) {
  const iso = (ms: number): string => new Date(ms).toISOString();
  const { verified, state } = session.standing();
  const term = verified ? session.current() : undefined;
  const verdict = session.lastVerdict() ?? null;
  const epoch = term && {
    secretId: term.secretId,
    manifestSha256: term.manifestSha256,
    verdictSha256: term.verdictSha256,
    attestedAt: iso(term.attestedAt),
    renewAt: iso(term.renewAt),
    expiresAt: iso(term.expiresAt),
  };
  return {
    version: VERSION,
    protocol,
    now: iso(now),
    verified,
    state: state as string,
    epoch: epoch ?? null,
    verdict,
    chain: verdict === null ? [] : chainOfTrust(verdict),
  };
}
