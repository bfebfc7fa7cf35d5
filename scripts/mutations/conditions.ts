/** Faults in what tells a person that something needs attention. */
import type { Mutation } from './mutation.ts';

const REGISTRY = 'lib/observe/conditions.ts';
const REGISTRY_TEST = 'test/observe/conditions.test.ts';

export const CONDITIONS: readonly Mutation[] = [
  {
    defence: 'fixes that Node lacks: those of a TLS listener are named for none',
    file: 'lib/observe/runtime-floor.ts',
    edits: [{ find: "'TLS listener': use.tls,", replace: "'TLS listener': false," }],
    tests: [
      {
        file: 'test/observe/runtime-floor.test.ts',
        names: [
          'the check of the Node that runs the program names the missing fixes that concern the proxy, and no others: 26.13.0 with {"tls":true,"clientCertificates":false}',
        ],
      },
    ],
  },
  {
    defence: 'conditions of several workers: the log repeats each',
    file: REGISTRY,
    edits: [{ find: 'if (isKnown && fields === undefined) return;', replace: '' }],
    tests: [
      {
        file: REGISTRY_TEST,
        names: [
          'the conditions that workers report are one condition if workers share it, logged once when it begins and once when it is over for all',
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
      {
        file: REGISTRY_TEST,
        names: ['a condition is over only when each of its causes has been cleared'],
      },
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
          'the conditions that workers report are forgotten when their worker is gone, without a log line that they are over',
        ],
      },
    ],
  },
  {
    defence: 'a state that becomes worse: the log says that its problem is over',
    file: 'lib/observe/session-log.ts',
    edits: [{ find: 'conditions.drop(id)', replace: 'conditions.clear(id)' }],
    tests: [
      {
        file: 'test/observe/session-log.test.ts',
        names: [
          'the state of the session among the conditions is not logged as over when a condition of another state replaces it',
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
        names: [
          'an API key of the proxy that the service rejects gives a critical condition at the third rejection within a minute',
        ],
      },
    ],
  },
  {
    defence: "the own key: an answer under another client's key ends the condition of a rejected one",
    file: 'lib/observe/own-key.ts',
    edits: [
      {
        find: 'if (refusals.delete(client)) conditions',
        replace: 'for (client of refusals.keys()) conditions',
      },
    ],
    tests: [
      {
        file: 'test/observe/own-key.test.ts',
        names: [
          'an API key of the proxy that the service rejects is named by its client and becomes critical although the service answers under other keys',
        ],
      },
    ],
  },
  {
    defence: 'the own key with workers: an answer that a worker reports does not end the condition',
    file: 'lib/workers/forked-worker.ts',
    edits: [
      {
        find: 'deps.observeOwnKey(message.event);',
        replace: "if (message.event.type !== 'answered') deps.observeOwnKey(message.event);",
      },
    ],
    tests: [
      {
        file: 'test/workers/primary.test.ts',
        names: [
          'the primary has the condition own_key_rejected from what one worker reports until another reports an answer',
        ],
      },
    ],
  },
  {
    defence: 'the own key: a key that was replaced still counts as rejected, or as accepted',
    file: 'lib/observe/own-key.ts',
    edits: [
      { find: 'return configured !== undefined && configured !== key;', replace: 'return false;' },
      { find: 'keyed.get(client) !== key;', replace: '!keyed.has(client);' },
    ],
    tests: [
      {
        file: 'test/observe/own-key.test.ts',
        names: [
          'an API key that replaces a rejected one of --api-key ends the condition, and is judged by requests that were sent with it only',
          'an API key that replaces a rejected one of a client ends the condition, and is judged by requests that were sent with it only',
        ],
      },
    ],
  },
  {
    defence: 'the own key: nobody is told that a file has brought another key',
    file: 'lib/proxy.ts',
    edits: [{ find: "shared.observeOwnKey({ type: 'configured', key: next });", replace: '' }],
    tests: [
      {
        file: 'test/e2e/conditions.test.ts',
        names: ['a running proxy has the condition own_key_rejected until its API key file gets another key'],
      },
    ],
  },
  {
    defence: "the own key: a client's key passes for that of --api-key",
    file: 'lib/gateway/refused-key.ts',
    edits: [{ find: 'client?.apiKey === undefined ? undefined : client.name', replace: 'void client' }],
    tests: [
      {
        file: 'test/gateway/own-key.test.ts',
        names: [
          "an operator's key that the service refuses makes a request with the key of its entry in the clients file 400 service_key_rejected, final, under --clients",
        ],
      },
    ],
  },
  {
    defence: 'expiring certificates: nothing is said before they expire',
    file: 'lib/listener/certificate-expiry.ts',
    edits: [{ find: 'if (left > times.expirySoon) {', replace: 'if (left > 0) {' }],
    tests: [
      {
        file: 'test/listener/certificate-expiry.test.ts',
        names: [
          'the expiry of a certificate gives a warning in the last 14 days and a critical condition afterwards, and neither after a renewal',
        ],
      },
    ],
  },
  {
    defence: 'expiring certificates: only the first of a chain counts',
    file: 'lib/listener/certificate-expiry.ts',
    edits: [
      { find: '(next.ends < first.ends ? next : first)', replace: '(next.ends > first.ends ? next : first)' },
    ],
    tests: [
      {
        file: 'test/listener/certificate-expiry.test.ts',
        names: ['the expiry of a certificate is the earliest one in the certificate chain'],
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
        names: [
          'a running proxy has the condition clients_file_unusable or client_key_unusable while the file or a key in it is unusable',
        ],
      },
    ],
  },
  {
    defence: 'the end of a condition: what nobody repaired is logged as over',
    file: 'lib/observe/session-log.ts',
    edits: [{ find: 'else if (verified && open', replace: 'else if (open' }],
    tests: [
      {
        file: 'test/observe/session-log.test.ts',
        names: [
          'the state of the session among the conditions is not logged as over when the secret ends that could not be renewed',
        ],
      },
    ],
  },
  {
    defence: 'the end of a rejection: nothing is logged, since the secret comes after the verdict',
    file: 'lib/observe/session-log.ts',
    edits: [{ find: 'conditions.drop(id);', replace: '{ conditions.drop(id); open = undefined; }' }],
    tests: [
      {
        file: 'test/observe/session-log.test.ts',
        names: [
          'the state of the session among the conditions is logged as over once a secret follows accepted evidence, however long nobody knew',
        ],
      },
    ],
  },
  {
    defence: 'the verdict under the newest manifest: a replaced deployment is reported as a failure',
    file: 'lib/observe/session-log.ts',
    edits: [
      {
        find: "if (event.type === 'rejected') return !event.rejection.newest;",
        replace: "if (event.type === 'rejected') return false;",
      },
    ],
    tests: [
      {
        file: 'test/observe/session-log.test.ts',
        names: [
          'the state of the session among the conditions is not logged while a renewal finds the service under a newer manifest',
        ],
      },
    ],
  },
  {
    defence: 'a disk that hangs: nobody is told of the receipts that are lost meanwhile',
    file: 'lib/receipts/receipt-log.ts',
    edits: [{ find: 'cancelLoss ??= clock.after(times.lossDelay, tellLoss);', replace: '' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: ['writing receipts reports a loss while the disk hangs'],
      },
    ],
  },
  {
    defence: 'a disk that hangs: receipts wait without a word',
    file: 'lib/files/line-files.ts',
    edits: [
      {
        find: 'clock.after(diskPatience, tooSlow)',
        replace: 'clock.after(diskPatience, () => {})',
      },
    ],
    tests: [
      {
        file: 'test/files/line-files.test.ts',
        names: [
          'the writer of lines in batches reports a batch that is not written in time, and reports the recovery once it is written',
        ],
      },
    ],
  },
  {
    defence: 'a disk that fails for another reason: its condition keeps the first one',
    file: 'lib/files/line-files.ts',
    edits: [{ find: 'if (code !== failure) deps', replace: 'if (failure === undefined) deps' }],
    tests: [
      {
        file: 'test/files/line-files.test.ts',
        names: [
          'the writer of lines in batches reports a failure again when its reason changes, and no more often',
        ],
      },
    ],
  },
  {
    defence: 'a store of the limits that fails for another reason: its condition keeps the first one',
    file: 'lib/limits/redis-connection.ts',
    edits: [{ find: 'if (reason !== failure && ', replace: 'if (failure === undefined && ' }],
    tests: [
      {
        file: 'test/limits/redis-keys.test.ts',
        names: ['a store that fails for another reason than before is reported with the new reason, once'],
      },
    ],
  },
  {
    defence: 'a disk that is still full: counts that became too old count as written',
    file: 'lib/files/line-files.ts',
    edits: [{ find: 'if (lost === undefined) return;', replace: '' }],
    tests: [
      {
        file: 'test/files/line-files.test.ts',
        names: [
          'the writer of lines in batches reports a recovery only after a batch that was written, and none after a batch without records',
        ],
      },
    ],
  },
  {
    defence: 'a disk that has room again: counts_waiting stays if what waited has become too old',
    file: 'lib/limits/count-log.ts',
    edits: [{ find: 'const isLast = record === last;', replace: 'const isLast = false;' }],
    tests: [
      {
        file: 'test/limits/count-log.test.ts',
        names: [
          'counts of limits that cannot be written are reported as written again once the disk has room, though all that wait have become too old',
        ],
      },
    ],
  },
  {
    defence: 'a limits store that nobody asks: its absence is not noticed',
    file: 'lib/limits/redis-counts.ts',
    edits: [
      {
        find: 'const endLooks = every(clock, storeLook, look);',
        replace: 'const endLooks = every(clock, storeLook, () => look.name);',
      },
    ],
    tests: [
      {
        file: 'test/limits/redis-counts.test.ts',
        names: [
          'a store of limits without requests is probed, so that a store that stops replying is noticed, and is reported as connected only once',
        ],
      },
    ],
  },
  {
    defence: 'a release that the store of limits ran only perhaps: its tokens count twice',
    file: 'lib/limits/redis-counts.ts',
    edits: [
      {
        find: "if redis.call('ZADD', KEYS[4], 'GT', 'CH', turn, replica) == 1 then",
        replace: "if redis.call('ZADD', KEYS[4], 'GT', 'CH', turn, replica) >= 0 then",
      },
    ],
    tests: [
      {
        file: 'test/limits/redis-counts.test.ts',
        names: [
          'limits counted in a Redis that is away for a while count the tokens of requests that end while the network is away for longer than the lease once, also if what was sent first arrives last',
          'limits counted in a Redis that is away for a while count the tokens of a request once if the reply of Redis is lost',
        ],
      },
    ],
  },
  {
    defence:
      'a request that ends as the store of limits goes away for longer than the lease: its tokens are lost',
    file: 'lib/limits/redis-counts.ts',
    edits: [{ find: 'if tonumber(added) > 0 then', replace: 'if tonumber(added) > 0 and held == 1 then' }],
    tests: [
      {
        file: 'test/limits/redis-counts.test.ts',
        names: [
          'limits counted in a Redis that is away for a while count the tokens of requests that end while the network is away for longer than the lease once, also if what was sent first arrives last',
        ],
      },
    ],
  },
  {
    defence:
      'a store of limits that goes away again while it catches up: releases overtake others, which are lost',
    file: 'lib/limits/redis-counts.ts',
    edits: [{ find: 'owed.sort(byTurn);', replace: '' }],
    tests: [
      {
        file: 'test/limits/redis-counts.test.ts',
        names: [
          'limits counted in a Redis that is away for a while count the tokens of all requests that ended while Redis was away if it goes away again while they are sent',
        ],
      },
    ],
  },
  {
    defence: 'a store of limits that refuses a release once: the next release overtakes it, and it is lost',
    file: 'lib/limits/redis-counts.ts',
    edits: [{ find: 'owed[0]?.turn === undefined ? BATCH : 1', replace: 'BATCH' }],
    tests: [
      {
        file: 'test/limits/redis-counts.test.ts',
        names: [
          'limits counted in a Redis that is away for a while count the tokens of all requests that ended while Redis was away if it refuses the first of them once',
        ],
      },
    ],
  },
  {
    defence: 'keys of a client that were repaired: its condition stays if it sends no request any more',
    file: 'lib/limits/redis-counts.ts',
    edits: [
      {
        find: 'const tries = [...withoutKeys].map(',
        replace: 'const tries = [...withoutKeys].slice(withoutKeys.size).map(',
      },
    ],
    tests: [
      {
        file: 'test/limits/redis-keys.test.ts',
        names: [
          'a client with a key in Redis that holds no count is reported as usable once the key is repaired, although it sends no request any more (a window that is a string)',
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
          'a running proxy has the condition admin_open if other machines can reach its admin listener, which the log names',
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
          'the watch on models reports the model of an alias as gone when two lists in a row lack it, and as back when a list has it',
        ],
      },
    ],
  },
  {
    defence: 'alerts with several workers: the mean hides a worker that is overloaded',
    file: 'lib/observe/metrics.ts',
    edits: [{ find: "seconds$/, 'max'],", replace: "seconds$/, 'first']," }],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics with several workers show nodejs_eventloop_lag_p99_seconds of the worker that is latest',
        ],
      },
    ],
  },
  {
    defence: 'alerts with several workers: a worker whose memory is full counts as a part of all',
    file: 'lib/observe/metrics.ts',
    edits: [{ find: "    aggregator: 'max',\n", replace: "    aggregator: 'average',\n" }],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics with several workers show how full the fullest worker is of its part of the memory, and the sum of the parts',
        ],
      },
    ],
  },
  {
    defence: 'the alert about a service that is not verified: it fires for an idle proxy without a key',
    file: 'lib/observe/metrics.ts',
    edits: [
      {
        find: "standing().state === 'awaiting-key' ? 1 : 0",
        replace: "standing().state === 'ended' ? 1 : 0",
      },
    ],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'the metric that a key is awaited is 1 only while nothing else keeps the service from being verified',
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
          'metrics that alerts compare over time are 0 before the first error, for rejections of the service, failures to decrypt and verifications',
        ],
      },
    ],
  },
];
