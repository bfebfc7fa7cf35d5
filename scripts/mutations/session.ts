/** Faults in which secret is in force, which manifest, and for how long. */
import type { Mutation } from './mutation.ts';

export const SESSION: readonly Mutation[] = [
  {
    defence:
      'the mark of a denied secret: everything goes on saying "verified" under a secret that the service has not',
    file: 'lib/session/state.ts',
    edits: [{ find: '!state.isDenied && isHeld(state, at)', replace: 'isHeld(state, at)' }],
    tests: [
      {
        file: 'test/session/denied-secret.test.ts',
        names: [
          'a denied secret is marked at once, so that nothing says verified, and replaced if the service verifies again',
        ],
      },
    ],
  },
  {
    defence: "a denied secret: a stranger with a wrong key switches off everybody's",
    file: 'lib/session/state.ts',
    edits: [
      {
        find: 'before.isDenied && (rejected !== undefined || isAnswer)',
        replace: 'before.isDenied',
      },
    ],
    tests: [
      {
        file: 'test/session/session-properties.test.ts',
        names: [
          'session under any sequence of events loses no secret, and no request with a good key, to strangers who deny it with wrong keys or none',
        ],
      },
      {
        file: 'test/session/denied-secret.test.ts',
        names: ['a denied secret is kept when the secret service refuses the key of another client'],
      },
    ],
  },
  {
    defence: 'a denied secret: all requests try it at once',
    file: 'lib/session/session.ts',
    edits: [{ find: 'triedAt + times.confirmAfter', replace: 'triedAt' }],
    tests: [
      {
        file: 'test/session/denied-secret.test.ts',
        names: [
          'a denied secret is tried by one request at a time, and kept, while the service does not answer',
        ],
      },
    ],
  },
  {
    defence: 'the keys that were rejected: each request asks the service again',
    file: 'lib/session/attempts.ts',
    edits: [{ find: 'clock.monotonic() - at < clock.times.refusedKeyKept', replace: 'Date.now() < 0' }],
    tests: [
      {
        file: 'test/session/client-keys.test.ts',
        names: ['session without a configured key tries a rejected key again only 30 s after the rejection'],
      },
    ],
  },
  {
    defence:
      'the renewal by clients: a stranger with one wrong key after another puts it off until the secret ends',
    file: 'lib/session/attempts.ts',
    edits: [
      {
        find: 'joinable.size === 0 || (isLate && joinable.size < MAX_RUNNING && isTrusted(apiKey))',
        replace: 'joinable.size === 0',
      },
    ],
    tests: [
      {
        file: 'test/session/client-keys.test.ts',
        names: [
          'the keys of clients that attest renew a secret in the last fifth of its term beside the key of a stranger, if they have attested before',
        ],
      },
    ],
  },
  {
    defence: 'the end of a secret: a wall clock that is set back keeps it in use',
    file: 'lib/session/state.ts',
    edits: [
      {
        find: 'now < term.expiresAt && monotonic < term.expiresMonotonic',
        replace: 'now < term.expiresAt',
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
    defence: 'the verdict that is shown: evidence without a secret passes for a service that was accepted',
    file: 'lib/session/epoch.ts',
    edits: [{ find: 'last && (last.failure === null ? completed(error, last) : last)', replace: 'last' }],
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
    file: 'lib/session/session.ts',
    edits: [
      {
        find: 'if (clock.now() >= due) renewOverdue',
        replace: 'if (clock.now() >= usable.renewAt) renewOverdue',
      },
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
    defence: 'an attempt that ended with its request: every later request waits for it',
    file: 'lib/session/attempts.ts',
    edits: [
      {
        find: 'if (!shares) start(attempt);\n      else {',
        replace: '{',
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session whose requests share no attempt, since an attempt ends with its request (workers of Cloudflare) attests for each request that waits, although an earlier attempt never ends',
        ],
      },
    ],
  },
  {
    defence: 'the end of a process: whoever forges a refusal ends a proxy that has had a secret',
    file: 'lib/session/session.ts',
    edits: [{ find: 'epoch === undefined && !hasReported', replace: '!hasReported' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'permanent causes of failure a rejected key is never reported once the process has had a secret: it stays, not ready, and recovers by itself',
        ],
      },
    ],
  },
  {
    defence: 'a service that is refused: the newest manifest need not have been tried',
    file: 'lib/session/state.ts',
    edits: [{ find: 'if (newest && !isRollout &&', replace: 'if (!isRollout &&' }],
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
    defence: 'a rejection: silence after it takes it back',
    file: 'lib/session/epoch.ts',
    edits: [{ find: 'again.epoch || again.rejected || again.isAccepted ? again : made', replace: 'again' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: ['a service that is rejected stays rejected if it does not answer under the newest manifest'],
      },
    ],
  },
  {
    defence: 'the checks of a secret: it may come from anywhere',
    file: 'lib/session/secret-exchange.ts',
    edits: [
      {
        find: "checks.length === 0 || checks.some(({ outcome }) => outcome !== 'pass')",
        replace: 'checks.length < 0',
      },
    ],
    tests: [
      {
        file: 'test/session/secret-exchange.test.ts',
        names: ['secret exchange derives nothing unless every check passed'],
      },
    ],
  },
  {
    defence: 'the private key of an exchange: it may be used twice',
    file: 'lib/session/secret-exchange.ts',
    edits: [{ find: '    privateKey = undefined;\n    if (recipient', replace: '    if (recipient' }],
    tests: [
      {
        file: 'test/session/secret-exchange.test.ts',
        names: ['secret exchange refuses to use its private key twice, even if the first use failed'],
      },
    ],
  },
  {
    defence:
      'TCB info: firmware that Intel calls outdated since counts as up to date until the kept one expires',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'kind === VCEK) return', replace: "!kind.name.endsWith('CRL')) return" }],
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
    defence: 'the size of a revocation list: one that no verdict reads takes the place of the kept one',
    file: 'lib/session/collateral-cache.ts',
    edits: [
      {
        find: 'expiry: ({ body: crl }) => readRevocationList({ crl })',
        replace: 'expiry: ({ body: crl }) => readRevocationList({ crl }, 2 ** 23)',
      },
    ],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: ['collateral cache does not take a revocation list that is too large to be judged'],
      },
    ],
  },
  {
    defence: 'the manifest log: a manifest is enforced that could not be logged',
    file: 'lib/session/epoch.ts',
    edits: [
      {
        find: 'const { appended, path } = await manifestLog.record(input.manifest, clock.now());',
        replace:
          "const { appended, path } = await manifestLog.record(input.manifest, clock.now()).catch(() => ({ appended: true, path: '' }));",
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
    defence: 'a disk that hangs: the renewals wait for the manifest log for ever',
    file: 'lib/manifest-log.ts',
    edits: [{ find: 'return inTime(appended).catch(', replace: 'return appended.catch(' }],
    tests: [
      {
        file: 'test/manifest-log.test.ts',
        names: [
          'manifest log waits ten seconds for a disk that neither answers nor fails, and fails unless the manifest is recorded',
        ],
      },
    ],
  },
  {
    defence: 'the history of manifests: it may begin anew beside its manifests',
    file: 'lib/manifest-log.ts',
    edits: [
      { find: 'if (!names.some((name) => /^\\d+\\.json$/.test(name))) return', replace: 'if (names) return' },
    ],
    tests: [
      {
        file: 'test/manifest-log.test.ts',
        names: [
          'manifest log refuses to begin a history beside manifests whose log is gone, and advises to keep them',
        ],
      },
    ],
  },
];
