/** Faults in what keeps and shows what was verified: session, transparency, verify. */
import type { Mutation } from './mutation.ts';

export const TRUST: readonly Mutation[] = [
  {
    defence:
      'the suspension of a denied secret: everything goes on saying "verified" under a secret that the service has not',
    file: 'lib/session/state.ts',
    edits: [
      {
        find: 'secret !== undefined && !secret.suspended && isUsableAt(secret, at) ? secret : undefined;',
        replace: 'secret !== undefined && isUsableAt(secret, at) ? secret : undefined;',
      },
    ],
    tests: [
      {
        file: 'test/session/suspended-secret.test.ts',
        names: [
          'a secret that the service denies is suspended at the first rejection after it; the second one, six seconds later, is what requests are told',
          'a secret that the service denies is suspended where the renewal takes longer than requests wait',
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
          'a secret that the service denies ends in manifest_mismatch where the pinned manifest does not fit twice, and the proxy ends only when the secret would have',
          'a secret that the service denies is replaced by the next verdict that is accepted: an attacker who has gone leaves nothing behind',
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
    defence: 'the age of a revocation list: an older one may take the place of a newer one',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (isOlder(url, kind, body)) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache never takes an older revocation list for a newer one, though a rejected verdict made it forget that',
        ],
      },
    ],
  },
  {
    defence: 'the keys that were rejected: each request asks the service again',
    file: 'lib/session/client-keys.ts',
    edits: [{ find: 'if (age >= 0 && age < REMEMBER_REJECTION) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/session/client-keys.test.ts',
        names: [
          'session without a configured key does not ask again for a key that was rejected a moment ago, but does after half a minute',
          'the queue of client keys remembers a bounded number of rejections, the youngest ones',
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
        names: ['the start of a session enforces no manifest that cannot be logged'],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: anybody may have written them',
    file: 'lib/transparency/receipt.ts',
    edits: [
      {
        find: "return verify(null, Buffer.from(text), key, Buffer.from(signature[1] as string, 'base64'));",
        replace: 'return text.length > 0;',
      },
    ],
    tests: [
      {
        file: 'test/transparency/receipts.test.ts',
        names: [
          'checking receipts names a changed byte',
          'checking receipts names a line signed again with another key',
        ],
      },
    ],
  },
  {
    defence: 'the history of manifests: it may begin anew beside its manifests',
    file: 'lib/transparency/manifest-log.ts',
    edits: [
      { find: 'if (names.some((name) => NUMBERED.test(name))) throw', replace: 'if (Date.now() < 0) throw' },
    ],
    tests: [
      {
        file: 'test/transparency/manifest-log.test.ts',
        names: ['manifest log refuses to begin a history beside manifests whose log is gone'],
      },
    ],
  },
  {
    defence: 'the chain of trust: a link passes though one before it did not',
    file: 'lib/verdict/chain-of-trust.ts',
    edits: [{ find: 'const holds = vouched && isMade && ', replace: 'const holds = isMade && ' }],
    tests: [
      {
        file: 'test/verdict/chain-of-trust.test.ts',
        names: ['the chain of trust passes no link behind one that does not, for nothing vouches for it'],
      },
    ],
  },
  {
    defence: 'the nonce of an attestation: GET /verification shows what is hashed with it',
    file: 'lib/transparency/verification-document.ts',
    edits: [{ find: "['snp.report_data', 'tdx.policy.report_data']", replace: '[]' }],
    tests: [
      {
        file: 'test/transparency/verification-document.test.ts',
        names: [
          'what the verification document leaves out is the nonce and what is hashed with it, where the evidence is accepted',
          'what the verification document leaves out is the nonce and what is hashed with it, where the evidence is rejected',
          'what the verification document leaves out is the same of a quote, and nothing where the check was not made',
        ],
      },
    ],
  },
  {
    defence: 'half a line of a full disk: the next line is written behind it',
    file: 'lib/files/line-files.ts',
    edits: [{ find: 'if (!clean) await handle.truncate(good);', replace: '' }],
    tests: [
      {
        file: 'test/limits/count-log.test.ts',
        names: [
          'counts of limits that cannot be written wait while the disk is full, which is told once, and are written whole later',
          'counts of limits that cannot be written are written once where the disk is full between two days of one batch',
        ],
      },
    ],
  },
  {
    defence: 'the nonce of a saved exchange: files of two attempts go together',
    file: 'lib/commands/verify-files.ts',
    edits: [
      {
        find: "if (nonce !== undefined && stated !== undefined && stated !== Buffer.from(nonce).toString('base64')) {",
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-live.test.ts',
        names: [
          'verify of a live service refuses the secret exchange of another attempt, though the same mesh CA vouches for both',
        ],
      },
    ],
  },
  {
    defence:
      'evidence that has outlived its collateral: nothing else is judged by a time when it was in force',
    file: 'lib/commands/outlived-collateral.ts',
    edits: [
      {
        find: "if (at < subject.at && (await judge({ ...subject, at })).outcome === 'accepted') return",
        replace: 'if (at < subject.at) return',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-files.test.ts',
        names: [
          'a saved exchange under verify with a secret of another mesh CA is rejected, whatever has become of its collateral',
        ],
      },
    ],
  },
  {
    defence: 'the judgement of a saved secret: none of its checks counts',
    file: 'lib/verdict/judge.ts',
    edits: [
      {
        find: 'if (allAccepted(SECRET_EXCHANGE_ROWS, checks)) return',
        replace: 'if (firstFailure(checks) === undefined || checks.length > 0) return',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-live.test.ts',
        names: [
          'verify of a live service rejects secret-signature for secret.signature, live and again from the files',
          'verify of a live service rejects secret-foreign-ca for mesh.certificate.signature, live and again from the files',
        ],
      },
    ],
  },
  {
    defence: 'the texts of others in the status: they may steer the terminal',
    file: 'lib/commands/status-text.ts',
    edits: [
      {
        find: "if (typeof value === 'string') return printable(value, LONGEST_TEXT);",
        replace: "if (typeof value === 'string') return value;",
      },
    ],
    tests: [
      {
        file: 'test/commands/status-text.test.ts',
        names: [
          'the status for a terminal lets no text of the service or of an application steer the terminal',
        ],
      },
    ],
  },
  {
    defence: 'the flags of verify: those of the service are ignored for files',
    file: 'lib/commands/verify-flags.ts',
    edits: [{ find: 'if (stray !== undefined) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/commands/verify-flags.test.ts',
        names: [
          'the command line of verify is refused with --evidence=e --nonce=n --manifest=m --api-endpoint=x',
          'the command line of verify is refused with --evidence=e --nonce=n --manifest=m --unsafe-trust-roots=x',
        ],
      },
    ],
  },
  {
    defence: 'what is authentic: a report that anybody signed is the hardware speaking',
    file: 'lib/attestation/snp/verify.ts',
    edits: [{ find: ", 'snp.report.signature'", replace: '' }],
    tests: [
      {
        file: 'test/attestation/authentic.test.ts',
        names: ['evidence that is signed by another key is rejected, and authentic: no'],
      },
    ],
  },
  {
    defence: 'what is authentic: report data that bind something else',
    file: 'lib/attestation/authentic.ts',
    edits: [
      {
        find: 'expectedReportData: reportData({ ...document, nonce, transition }),',
        replace:
          'expectedReportData: reportData({ ...document, nonce: new Uint8Array(32).fill(9), transition }),',
      },
    ],
    tests: [
      {
        file: 'test/attestation/authentic.test.ts',
        names: ['evidence that answers another nonce is rejected, and authentic: no'],
      },
    ],
  },
  {
    defence: "the end of a process: a mismatch that is not the hardware's ends a pinned proxy",
    file: 'lib/session/decide.ts',
    edits: [
      {
        find: "return kind === 'static' && code === 'manifest_mismatch' && verdicts.mismatches",
        replace: "return kind === 'static' && code === 'manifest_mismatch'",
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          "a permanent cause of failure: a mismatch that is not the hardware's (authentic: no) is refused, and never reported",
          'a permanent cause of failure: one mismatch of the hardware and one of somebody else end nothing',
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
        names: ['a service that is rejected is not refused while the newest manifest cannot be fetched'],
      },
    ],
  },
  {
    defence: 'files of receipts: a link is followed',
    file: 'lib/files/own-files.ts',
    edits: [{ find: 'flags | O_NOFOLLOW | O_NONBLOCK', replace: 'flags | O_NONBLOCK' }],
    tests: [
      {
        file: 'test/files/own-files.test.ts',
        names: ['files of receipts are refused at the start: a key that is a link'],
      },
    ],
  },
  {
    defence: 'lines of receipts: the chain begins with what nobody signed',
    file: 'lib/transparency/receipt.ts',
    edits: [{ find: 'if (!isSignedBy(line, key)) return', replace: 'if (Date.now() < 0) return' }],
    tests: [
      {
        file: 'test/transparency/receipt-junk.test.ts',
        names: ['junk among receipts is named and breaks no chain: a forged first line'],
      },
    ],
  },
];
