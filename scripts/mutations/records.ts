/** Faults in what is shown as verified, now or later: verdicts, saved exchanges, receipts and their files. */
import type { Mutation } from './mutation.ts';

export const RECORDS: readonly Mutation[] = [
  {
    defence: 'the records of verifications: padded evidence may take any room in memory and on the disk',
    file: 'lib/session/epoch.ts',
    edits: [{ find: 'record && record.text.length <= LONGEST_RECORD', replace: 'record' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'the start of a session keeps the record of the exchange in the epoch; of one that is padded, the digest only',
        ],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: anybody may have written them',
    file: 'lib/receipts/receipt.ts',
    edits: [
      {
        find: "return verify(null, signed, key, Buffer.from(found[1] as string, 'base64'))",
        replace: 'return signed.length > 0',
      },
    ],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: ['checking receipts names a line that was changed'],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: the same signature has several spellings',
    file: 'lib/receipts/receipt.ts',
    edits: [{ find: '{85}[AQgw]==', replace: '{86}==' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'a receipt has a signature over every byte before it: a line with any byte changed, also of the signature, is no receipt',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a line may be missing, or stand there twice',
    file: 'lib/receipts/check-receipts.ts',
    edits: [
      {
        find: 'last ? line?.prev === before && line?.seq === last.seq + 1 : number === 1',
        replace: 'last !== undefined || number === 1',
      },
    ],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'checking receipts names a line that was removed',
          'checking receipts names a line that stands there twice',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a key counts that the reader did not name',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'given.size > 0 && !given.has(name)', replace: 'given.size < 0' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'the key of receipts is a new one if key.pem was moved away; with --public-key only chains of the given ones count',
        ],
      },
    ],
  },
  {
    defence: 'receipts: somebody else goes on with a chain under a key of his own',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'chains.get(instance)?.key ?? keys.get(file)', replace: 'keys.get(file)' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'the key of receipts of somebody else does not go on with a chain; a directory signed anew shows only in the key',
        ],
      },
    ],
  },
  {
    defence: 'receipts: an unsigned line hides the end of a chain from the next start',
    file: 'lib/receipts/receipt-log.ts',
    edits: [{ find: 'if (first.signer?.equals(key)) named', replace: 'named' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'checking receipts lets nobody hide a chain from the next start by naming it in a line that is not signed',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a file that a later start has found may be taken away',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'if (file >= since) fail(by,', replace: 'if (file < since) fail(by,' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'checking receipts misses a deleted file if an instance that began later has found it; and then that instance, too',
        ],
      },
    ],
  },
  {
    defence: 'receipts: an empty file passes for receipts',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'if (lines === 0) (', replace: 'if (files.length === 0) (' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'checking receipts reports a cut end, a torn line and an empty file as gaps, which fail a strict check',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a copy of a removed line in another file hides that it was removed',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'if (named.get(digest)?.file === file)', replace: 'if (file !== undefined)' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'checking receipts is not deceived about a file that was removed by a copy of its last line elsewhere, be it cut off',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a manifest that was replaced is not missed',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'if (!logged.has(digest))', replace: 'if (logged.size < 0)' }],
    tests: [
      {
        file: 'test/receipts/check-receipts.test.ts',
        names: [
          'what receipts refer to is named once, with the first line that refers to it: a manifest that was changed',
        ],
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
        names: [
          'the chain of trust does not pass a link behind one that failed, because nothing vouches for it',
        ],
      },
    ],
  },
  {
    defence: 'the text of a verdict: text of the remote can steer a terminal',
    file: 'lib/verdict/text.ts',
    edits: [{ find: 'printable(found)}`,\n    `  check', replace: 'found}`,\n    `  check' }],
    tests: [
      {
        file: 'test/verdict/text.test.ts',
        names: ['the verdict for a person shows nothing of the remote that could steer a terminal'],
      },
    ],
  },
  {
    defence: 'the text of a verdict: a simulator has the check mark of real hardware',
    file: 'lib/verdict/text.ts',
    edits: [{ find: "outcome === 'accepted' && roots === 'custom'", replace: 'false' }],
    tests: [
      {
        file: 'test/verdict/text.test.ts',
        names: [
          'the first line of the verdict has a check mark only for evidence that was accepted under the roots of AMD and Intel',
        ],
      },
    ],
  },
  {
    defence: 'the verdict on a secret exchange: none of its checks counts',
    file: 'lib/verdict/judge.ts',
    edits: [
      {
        find: 'if (failed === undefined && checks.length > 0) return whole;',
        replace: 'if (checks.length > 0) return whole;',
      },
    ],
    tests: [
      {
        file: 'test/verdict/judge.test.ts',
        names: ['the checks of a secret exchange give accepted evidence the outcome rejected if one fails'],
      },
    ],
  },
  {
    defence: 'a kept record: one that was changed passes under its name',
    file: 'lib/commands/verify-saved.ts',
    edits: [{ find: '!basename(saved).startsWith(exchange)', replace: 'Date.now() < 0' }],
    tests: [
      {
        file: 'test/commands/verify-saved.test.ts',
        names: ['verify --saved refuses a file whose name is the SHA-256 of another record'],
      },
    ],
  },
  {
    defence: 'the time of a receipt: that of a line with a false signature counts',
    file: 'lib/commands/verify-saved.ts',
    edits: [{ find: 'readLine(text, signer)', replace: 'JSON.parse(text)' }],
    tests: [
      {
        file: 'test/commands/verify-saved.test.ts',
        names: ['--receipts-dir refuses receipts in which no sound line names the record'],
      },
    ],
  },
  {
    defence: 'a record without a secret exchange: its evidence alone is accepted',
    file: 'lib/verdict/judge.ts',
    edits: [{ find: 'completed(ended ?? NO_SECRET, evidence)', replace: 'completed(ended, evidence)' }],
    tests: [
      {
        file: 'test/commands/verify-saved.test.ts',
        names: [
          'a record without a secret exchange is never accepted: the error decides that it states, else that nothing was exchanged',
        ],
      },
    ],
  },
  {
    defence: 'the texts of others on the status page: they may be HTML',
    file: 'lib/observe/status-html.ts',
    edits: [{ find: "(value ?? '').replace(/[&<>\"']/g,", replace: "(value ?? '').replace(/[]/g," }],
    tests: [
      {
        file: 'test/observe/status-html.test.ts',
        names: ['the status page writes what others wrote as text, never as HTML, wherever it stands'],
      },
    ],
  },
  {
    defence: 'the texts of others in the status: they may steer the terminal',
    file: 'lib/observe/status-view.ts',
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
    defence: 'files of receipts: a link is followed',
    file: 'lib/files/durable-file.ts',
    edits: [{ find: 'O_CREAT | O_NOFOLLOW | O_NONBLOCK', replace: 'O_CREAT | O_NONBLOCK' }],
    tests: [
      {
        file: 'test/files/durable-file.test.ts',
        names: [
          'files of our own are not written through a link, nor in a directory that a link has replaced; they wait for no FIFO',
        ],
      },
    ],
  },
];
