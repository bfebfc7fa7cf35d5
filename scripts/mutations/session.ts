/** Faults in which secret is in force, which manifest, and for how long. */
import type { Mutation } from './mutation.ts';

export const SESSION: readonly Mutation[] = [
  {
    defence:
      'the suspension of a denied secret: everything goes on saying "verified" under a secret that the service has not',
    file: 'lib/session/state.ts',
    edits: [
      {
        find: "secretAt(secret, at) === 'good' ? secret : undefined;",
        replace: "['good', 'suspended'].includes(secretAt(secret, at)) ? secret : undefined;",
      },
    ],
    tests: [
      {
        file: 'test/session/suspended-secret.test.ts',
        names: [
          'a session with a denied secret or API key suspends the secret at the first rejection; requests get attestation_failed at the second one, after six seconds',
          'a session with a denied secret or API key suspends the secret if the renewal takes longer than requests wait',
        ],
      },
    ],
  },
  {
    defence: 'the end of a process: a denial and the evidence of a rented machine end a pinned proxy',
    file: 'lib/session/decide.ts',
    edits: [
      {
        find: 'if (secret !== undefined && livesAt(secret, at)) return undefined;',
        replace: 'if (secretInForce(state, at) !== undefined) return undefined;',
      },
    ],
    tests: [
      {
        file: 'test/session/suspended-secret.test.ts',
        names: [
          'a session with a denied secret or API key says manifest_mismatch after two mismatches with a pinned manifest; the proxy ends when the secret expires',
          'a session with a denied secret or API key replaces the secret at the next accepted verdict, and keeps no trace of earlier rejections',
        ],
      },
    ],
  },
  {
    defence: 'the checks of a secret: it may come from anywhere',
    file: 'lib/session/secret-exchange.ts',
    edits: [
      {
        find: 'if (refused === undefined && checks.length > 0) return;',
        replace: 'if (checks.length >= 0) return;',
      },
    ],
    tests: [
      {
        file: 'test/session/secret-exchange.test.ts',
        names: [
          'secret exchange derives nothing unless every check passed',
          'secret exchange with the vectors of attestation/synthetic, judged by the rules of the mesh refuses secret_cert_other_ca.json',
        ],
      },
    ],
  },
  {
    defence: 'the private key of an exchange: it may be used twice',
    file: 'lib/session/secret-exchange.ts',
    edits: [{ find: '      privateKey = undefined;\n      if (recipient', replace: '      if (recipient' }],
    tests: [
      {
        file: 'test/session/secret-exchange.test.ts',
        names: ['secret exchange refuses to use its private key twice, even if the first use failed'],
      },
    ],
  },
  {
    defence: 'ids in evidence: what nobody has verified yet is put into a URL',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (!fits) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: ['collateral cache refuses malformed ids and numbers instead of putting them into a URL'],
      },
    ],
  },
  {
    defence: 'the age of a revocation list: an older one may take the place of a newer one',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (isOlder(url, kind, fetched))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache never replaces a revocation list by an older one, even if a rejected verdict made it forget the newer',
        ],
      },
    ],
  },
  {
    defence:
      'TCB info: firmware that Intel calls outdated since counts as up to date until the kept one expires',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'kind.issued === undefined) return', replace: "!kind.name.endsWith('CRL')) return" }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral: TCB info is fetched from its URL each time, and the stored copy is used if that fails',
          'collateral: QE identity is fetched from its URL each time, and the stored copy is used if that fails',
        ],
      },
    ],
  },
  {
    defence: 'the date of TCB info: one that Intel did not sign keeps out every later one',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (isForged) newest.delete(url);', replace: '' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache never replaces TCB info by an older one, unless its date came from somebody else than Intel',
          'collateral cache never replaces a revocation list by an older one, even if a rejected verdict made it forget the newer',
        ],
      },
    ],
  },
  {
    defence: 'the size of a revocation list: the date of one that no verdict reads is believed',
    file: 'lib/session/collateral-cache.ts',
    edits: [
      {
        find: 'expiry: ({ body: crl }) => readRevocationList({ crl })',
        replace: 'expiry: ({ body: crl }) => readRevocationList({ crl }, 2 ** 23)',
      },
      {
        find: 'issued: ({ body: crl }) => readRevocationList({ crl })',
        replace: 'issued: ({ body: crl }) => readRevocationList({ crl }, 2 ** 23)',
      },
    ],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache does not believe the date of a revocation list that is too large to be judged',
        ],
      },
    ],
  },
  {
    defence: 'the keys that were rejected: each request asks the service again',
    file: 'lib/session/client-keys.ts',
    edits: [
      { find: 'if (age >= 0 && age < clock.times.refusedKeyKept) {', replace: 'if (Date.now() < 0) {' },
    ],
    tests: [
      {
        file: 'test/session/client-keys.test.ts',
        names: [
          'session without a configured key tries a rejected key again only 30 s after the rejection',
          'the queue of client keys remembers the last 1,024 rejections',
        ],
      },
    ],
  },
  {
    defence: 'the end of a secret: a wall clock that is set back keeps it in use',
    file: 'lib/session/lifetimes.ts',
    edits: [
      {
        find: 'now < expiresAt && monotonic < expiresMonotonic',
        replace: 'now < expiresAt',
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'an attested secret expires by the monotonic clock, even if the wall clock is set back meanwhile',
        ],
      },
    ],
  },
  {
    defence: 'the manifest log: a manifest is enforced that could not be logged',
    file: 'lib/session/epoch.ts',
    edits: [
      {
        find: 'const { appended, path } = await manifestLog.record(manifest, clock.now());',
        replace:
          "const { appended, path } = await manifestLog.record(manifest, clock.now()).catch(() => ({ appended: true, path: '' }));",
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: ['the start of a session uses no secret until its manifest is logged'],
      },
    ],
  },
  {
    defence: 'the verdict that is shown: evidence without a secret passes for a service that was accepted',
    file: 'lib/session/renewals.ts',
    edits: [{ find: "event.type !== 'attested' && !isSilence(", replace: '!isSilence(' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'the start of a session gives no verdict that accepts while checks of the secret are missing; if it does not come, the verdict is unavailable, with a row for each of them',
        ],
      },
    ],
  },
  {
    defence: 'the pause between renewals: requests under a good secret cut it short',
    file: 'lib/session/waiting.ts',
    edits: [
      { find: 'clock.now() >= (state().due ?? ready.renewAt)', replace: 'clock.now() >= ready.renewAt' },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session that fails does not try more often because requests come while the secret is good',
        ],
      },
    ],
  },
  {
    defence: 'a lost renewal: every later request waits for it',
    file: 'lib/session/renewals.ts',
    edits: [{ find: 'watched === renewal && watched.signs === signs', replace: 'watched !== renewal' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session in a runtime that ends a renewal together with the request that began it begins another renewal for a request that has waited three seconds, and shares no fetch with the lost one',
          'a session in a runtime that ends a renewal together with the request that began it begins another renewal where the service denied the secret',
        ],
      },
    ],
  },
  {
    defence: 'a lost renewal: its secret is used if it comes back',
    file: 'lib/session/renewals.ts',
    edits: [{ find: 'if (!signal.aborted) use(epoch, number);', replace: 'use(epoch, number);' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session in a runtime that ends a renewal together with the request that began it uses nothing of a lost renewal that comes back',
        ],
      },
    ],
  },
  {
    defence: 'a service that is refused: the newest manifest need not have been tried',
    file: 'lib/session/refusal.ts',
    edits: [{ find: 'newest && (isOwnFault', replace: '(isOwnFault' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a service that is rejected is not called rejected while the newest manifest cannot be fetched: requests get not_ready',
        ],
      },
    ],
  },
  {
    defence: 'requests without a key: each stays in memory',
    file: 'lib/session/waiting.ts',
    edits: [
      {
        find: '    if (offeredKey === undefined) {\n',
        replace: '    if (offeredKey === undefined) {\n      requests.change();\n',
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: ['a session without a key keeps nothing of requests that bring no key'],
      },
    ],
  },
  {
    defence: 'a disk that hangs: the renewals wait for the manifest log for ever',
    file: 'lib/manifest-log/manifest-log.ts',
    edits: [{ find: 'return inTime(appended).catch(', replace: 'return appended.catch(' }],
    tests: [
      {
        file: 'test/manifest-log/manifest-log.test.ts',
        names: [
          'manifest log waits ten seconds for a disk that neither answers nor fails, and fails unless the manifest is recorded',
        ],
      },
    ],
  },
  {
    defence: 'the history of manifests: it may begin anew beside its manifests',
    file: 'lib/manifest-log/manifest-log.ts',
    edits: [
      { find: 'if (!names.some((name) => MANIFEST_NAME.test(name))) return', replace: 'if (names) return' },
    ],
    tests: [
      {
        file: 'test/manifest-log/manifest-log.test.ts',
        names: [
          'manifest log refuses to begin a history beside manifests whose log is gone, and advises to keep them',
        ],
      },
    ],
  },
];
