/** Faults in what is shown as verified, now or later: verdicts, saved exchanges, receipts and their files. */
import type { Mutation } from './mutation.ts';

export const RECORDS: readonly Mutation[] = [
  {
    defence: 'the recorded exchanges: a flood of one day displaces those of a month',
    file: 'lib/receipts/verdict-store.ts',
    edits: [
      {
        find: 'shareOf(greatest) > DAY_SHARE ? greatest : left',
        replace: 'shareOf(greatest) > 2 ? greatest : left',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'writing receipts keeps a month of exchanges, however many are forced in a day, and at most 256 MiB of them',
        ],
      },
    ],
  },
  {
    defence: 'the recorded exchanges: padded evidence may take any room on the disk',
    file: 'lib/receipts/verdict-store.ts',
    edits: [{ find: 'bytes: await sizeOf(path)', replace: 'bytes: 0 * (await sizeOf(path))' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: ['writing receipts counts the bytes of exchanges that are stored'],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: anybody may have written them',
    file: 'lib/receipts/receipt.ts',
    edits: [
      {
        find: "return verify(null, Buffer.from(text), key, Buffer.from(signature[1] as string, 'base64'));",
        replace: 'return text.length > 0;',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'checking receipts names a changed byte',
          'checking receipts names a line signed again with another key',
        ],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: the same signature has several spellings',
    file: 'lib/receipts/receipt.ts',
    edits: [{ find: '{85}[AQgw]==', replace: '{86}==' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'a receipt has a signature over every byte before it: a line with any byte changed, also of the signature, is no receipt',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a key that somebody else announces counts',
    file: 'lib/receipts/check-receipts.ts',
    edits: [
      {
        find: 'const { first } = await keyOfChain(directory, names, { instance, keys, find });',
        replace:
          'const { first } = await keyOfChain(directory, names, { instance, keys, find: (name) => keyNamed(directory, name) });',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'somebody without the key of receipts cannot sign a directory again: neither with a key beside the receipts, nor with a rotation of his own',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a file has the name of another key',
    file: 'lib/receipts/receipt-keys.ts',
    edits: [{ find: 'key !== undefined && keySha256(key) === name ? key : undefined', replace: 'key' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'somebody without the key of receipts cannot replace an announced key by his own, because a key is named by its hash',
        ],
      },
    ],
  },
  {
    defence: 'receipts before --since: the end of a chain hides that later days are gone',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'if (late !== undefined) edgeFindings.push(late);', replace: '' }],
    tests: [
      {
        file: 'test/receipts/receipt-days.test.ts',
        names: [
          'somebody without the key cannot hide lines from --since by moving the end of a chain to the last line of an earlier file, and deleting the days between',
          'somebody without the key cannot hide lines from --since by renaming the first file of a chain to an earlier day, and cutting a line out of it',
        ],
      },
    ],
  },
  {
    defence: 'receipts: an empty file passes for receipts',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'chains.every(({ opened }) => opened === undefined)', replace: 'chains.length === 0' }],
    tests: [
      {
        file: 'test/commands/receipts.test.ts',
        names: [
          'receipts verify exits with 10 if the only file with the name of receipts is empty, and shows no check mark with --since',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a manifest that was replaced is not missed',
    file: 'lib/receipts/check-references.ts',
    edits: [{ find: '.filter(([sha256]) => !kept.has(sha256))', replace: '.filter(() => false)' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: ['the manifest of a receipt is reported as missing if it is changed'],
      },
    ],
  },
  {
    defence: 'receipts: a key of another kind signs them',
    file: 'lib/receipts/receipt-keys.ts',
    edits: [
      {
        find: "pem === undefined || key?.asymmetricKeyType === 'ed25519'",
        replace: 'pem === undefined || key !== undefined',
      },
    ],
    tests: [
      {
        file: 'test/files/own-files.test.ts',
        names: ['files of receipts are refused at the start: a key of another kind'],
      },
    ],
  },
  {
    defence: 'lines of receipts: the chain begins with what nobody signed',
    file: 'lib/receipts/receipt.ts',
    edits: [{ find: 'if (!isSignedBy(line, key)) return', replace: 'if (Date.now() < 0) return' }],
    tests: [
      {
        file: 'test/receipts/receipt-junk.test.ts',
        names: [
          'junk among receipts is named, breaks no chain, and does not hide its end from the next instance: a forged first line',
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
    edits: [{ find: '!basename(saved).startsWith(sha256)', replace: 'Date.now() < 0' }],
    tests: [
      {
        file: 'test/commands/verify-saved.test.ts',
        names: ['verify --saved refuses a file whose name is the SHA-256 of another record'],
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
];
