/** Faults in what tells a person that something needs attention. */
import type { Mutation } from './mutation.ts';

const REGISTRY = 'lib/observe/conditions.ts';
const REGISTRY_TEST = 'test/observe/conditions.test.ts';

export const CONDITIONS: readonly Mutation[] = [
  {
    defence: 'conditions of several workers: the log repeats each',
    file: REGISTRY,
    edits: [{ find: 'if (isKnown && fields === undefined) return;', replace: '' }],
    tests: [
      {
        file: REGISTRY_TEST,
        names: [
          'conditions of several workers are one condition, logged once when it begins and once when it is over for all',
        ],
      },
    ],
  },
  {
    defence: 'conditions of several causes: the end of one ends all',
    file: REGISTRY,
    edits: [
      {
        find: 'if (entries?.delete(of) !== true || entries.size > 0) return false;',
        replace: 'if (entries?.delete(of) !== true) return false;',
      },
    ],
    tests: [
      { file: REGISTRY_TEST, names: ['a condition of several things is over once it is over for each'] },
    ],
  },
  {
    defence: 'conditions of a worker that ended: they stay for ever',
    file: REGISTRY,
    edits: [
      {
        find: 'if (name.startsWith(named())) drop(id, name);',
        replace: 'if (name === source) drop(id, name);',
      },
    ],
    tests: [
      {
        file: REGISTRY_TEST,
        names: [
          'conditions of several workers are forgotten with their worker, and nothing says that they are over',
        ],
      },
    ],
  },
  {
    defence: 'the own key: rejections never become critical',
    file: 'lib/observe/own-key.ts',
    edits: [
      {
        find: 'const isMany = refused.length === MANY &&',
        replace: 'const isMany = refused.length > MANY &&',
      },
    ],
    tests: [
      {
        file: 'test/observe/own-key.test.ts',
        names: ['the own key is critical at the third rejection within a minute'],
      },
    ],
  },
  {
    defence: 'expiring certificates: nothing is said before they expire',
    file: 'lib/server/certificate-expiry.ts',
    edits: [{ find: 'if (left > SOON_MS) {', replace: 'if (left > 0) {' }],
    tests: [
      {
        file: 'test/server/certificate-expiry.test.ts',
        names: [
          'the expiry of a certificate is a warning for the last 14 days, critical once it is over, and nothing before or after a renewal',
        ],
      },
    ],
  },
  {
    defence: 'expiring certificates: only the first of a chain counts',
    file: 'lib/server/certificate-expiry.ts',
    edits: [
      { find: '(next.ends < first.ends ? next : first)', replace: '(next.ends > first.ends ? next : first)' },
    ],
    tests: [
      {
        file: 'test/server/certificate-expiry.test.ts',
        names: ['the expiry of a certificate is that of the first of a chain to end'],
      },
    ],
  },
  {
    defence: 'a clients file that is repaired: its condition stays',
    file: 'lib/watch-files.ts',
    edits: [{ find: 'if (lastFailure !== undefined && !closed) recovered();', replace: '' }],
    tests: [
      {
        file: 'test/e2e/conditions.test.ts',
        names: ['a condition of a running proxy is a clients file, or a key in it, that cannot be used'],
      },
    ],
  },
  {
    defence: 'a disk that hangs: receipts wait without a word',
    file: 'lib/files/line-files.ts',
    edits: [
      {
        find: 'setTimeout(fail, deps.patience ?? PATIENCE, slow)',
        replace: 'setTimeout(() => {}, deps.patience ?? PATIENCE, slow)',
      },
    ],
    tests: [
      {
        file: 'test/files/line-files.test.ts',
        names: [
          'a batch of lines that the disk does not take in time is reported while it waits, and once it is written',
        ],
      },
    ],
  },
  {
    defence: 'a limits store that nobody asks: its absence is not noticed',
    file: 'lib/limits/redis-counts.ts',
    edits: [
      {
        find: 'const looks = setInterval(look, lookEvery).unref();',
        replace: 'const looks = setInterval(() => look.name, lookEvery).unref();',
      },
    ],
    tests: [
      {
        file: 'test/limits/redis-counts.test.ts',
        names: [
          'a store of limits that nobody asks is looked at, so that its absence is noticed, and said to be connected once',
        ],
      },
    ],
  },
  {
    defence: 'an admin listener that is open: nothing is said',
    file: 'lib/config/open-listeners.ts',
    edits: [
      {
        find: 'if (adminAddress !== undefined && !staysHere(adminAddress.host))',
        replace: 'if (adminAddress === undefined && staysHere(listenAddress))',
      },
    ],
    tests: [
      {
        file: 'test/e2e/conditions.test.ts',
        names: [
          'a condition of a running proxy is an admin listener that other machines can reach, which the log names at the start',
        ],
      },
    ],
  },
  {
    defence: 'models that are missing: one list is enough',
    file: 'lib/api/model-watch.ts',
    edits: [{ find: 'const LISTS = 2;', replace: 'const LISTS = 1;' }],
    tests: [
      {
        file: 'test/api/model-watch.test.ts',
        names: [
          'a model that somebody relies on of an alias is gone after two lists in a row without it, once, and back with the next that has it',
        ],
      },
    ],
  },
  {
    defence: 'alerts by increase: the first failure of a kind is not seen',
    file: 'lib/observe/metrics.ts',
    edits: [
      { find: "...(client === '' ? REJECTIONS : [])", replace: "...(client === 'nobody' ? REJECTIONS : [])" },
    ],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics that alerts compare over time are counted from 0 on: refusals of a service, and failures to decrypt',
        ],
      },
    ],
  },
];
