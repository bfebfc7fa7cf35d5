/** Faults in what keeps the clients of a team apart, and what listens for them. */
import type { Mutation } from './mutation.ts';

export const TEAM: readonly Mutation[] = [
  {
    defence: 'the throttle of strangers: they may guess tokens as fast as they can',
    file: 'lib/clients/authenticate.ts',
    edits: [{ find: 'return window.failures > MOST_FAILURES;', replace: 'return window.failures < 0;' }],
    tests: [
      {
        file: 'test/clients/authenticate.test.ts',
        names: [
          'requests of strangers are told to wait after 20 failures in a minute, and may try again in the next one',
          'requests of strangers from ::ffff:10.0.0.1 and 10.0.0.1 count as one',
        ],
      },
    ],
  },
  {
    defence: 'the expiry of a client: its tokens stay good',
    file: 'lib/clients/authenticate.ts',
    edits: [
      {
        find: '!(found.expires !== undefined && now >= found.expires)',
        replace: '!(found.expires !== undefined && now < 0)',
      },
    ],
    tests: [{ file: 'test/clients/authenticate.test.ts', names: ['a client is refused from its expiry on'] }],
  },
  {
    defence: 'the models of a client: it may use any',
    file: 'lib/clients/authenticate.ts',
    edits: [
      {
        find: 'models.some((pattern) => covers(pattern, model))',
        replace: 'models.some((pattern) => covers(pattern, model) || model.length > 0)',
      },
    ],
    tests: [
      {
        file: 'test/clients/authenticate.test.ts',
        names: [
          'what a client may use of the models gpt does not include gpt-2',
          'what a client may use of the models gpt-* does not include a-gpt-4',
          'what a client may use of the models a*b*c does not include acb',
        ],
      },
    ],
  },
  {
    defence: 'a certificate and a token of two clients: the certificate decides',
    file: 'lib/clients/authenticate.ts',
    edits: [
      {
        find: 'return !bringsToken || byToken === holder',
        replace: 'return !bringsToken || byToken !== undefined',
      },
    ],
    tests: [
      {
        file: 'test/clients/certificates.test.ts',
        names: [
          'a certificate and a token of another client are refused: the token is not one of the client that the certificate names',
          'a certificate and a token of another client, as x-api-key, are refused: the token is not one of the client that the certificate names',
        ],
      },
    ],
  },
  {
    defence: 'the requests per minute: there may be one more',
    file: 'lib/limits/count-requests.ts',
    edits: [
      {
        find: 'used.times.length - used.begin >= requestsPerMinute',
        replace: 'used.times.length - used.begin > requestsPerMinute',
      },
    ],
    tests: [
      {
        file: 'test/limits/count-requests.test.ts',
        names: [
          'the limit requestsPerMinute admits that many requests within any 60 s, and the next exactly 60 s after the first',
          'the limit requestsPerMinute of one admits one request, and the next one 60 s later',
        ],
      },
    ],
  },
  {
    defence: 'the places of --max-in-flight: a place that is given back twice lets one more in',
    file: 'lib/limits/fair-queue.ts',
    edits: [{ find: 'if (hasLeft) return;', replace: '' }],
    tests: [
      {
        file: 'test/limits/fair-queue.test.ts',
        names: ['the queue of --max-in-flight gives a place back once'],
      },
    ],
  },
  {
    defence: 'the places that are kept: a client that floods gets them too',
    file: 'lib/limits/fair-queue.ts',
    edits: [
      { find: 'queue.running === 0 ? limit : limit - kept', replace: 'queue.running === 0 ? limit : limit' },
    ],
    tests: [
      {
        file: 'test/limits/fair-queue.test.ts',
        names: [
          'the queue of --max-in-flight keeps a sixteenth of the places, from 8 on, for who has nothing running',
          'the queue of --max-in-flight lets a victim with one request at a time in at once, always, beside a flood',
        ],
      },
    ],
  },
  {
    defence: 'the pair of certificate and key: the two may belong to others',
    file: 'lib/server/tls.ts',
    edits: [
      { find: 'if (!certificate.checkPrivateKey(privateKey)) throw', replace: 'if (Date.now() < 0) throw' },
    ],
    tests: [
      {
        file: 'test/server/tls.test.ts',
        names: [
          'replaced certificates a key of another certificate: at the start it is the end',
          'replaced certificates a certificate for another key: at the start it is the end',
        ],
      },
    ],
  },
  {
    defence: 'the CAs of clients: the certificate of a client may be one',
    file: 'lib/server/tls.ts',
    edits: [
      { find: 'if (!certificates.every(({ ca }) => ca)) refuse', replace: 'if (Date.now() < 0) refuse' },
    ],
    tests: [
      {
        file: 'test/clients/certificates.test.ts',
        names: [
          'the file of --tls-client-ca with the certificate of a client is refused at the start, and later the old one stays',
        ],
      },
    ],
  },
  {
    defence: 'the places of a worker that ends: nobody gives them back',
    file: 'lib/workers/remote-gate.ts',
    edits: [{ find: 'for (const id of [...requests.keys()]) end(id, 0);', replace: '' }],
    tests: [
      {
        file: 'test/workers/remote-gate.test.ts',
        names: [
          'the gate of the primary, asked by workers gives back what a worker held and waited for when it is gone, and hears nothing of it any more',
        ],
      },
    ],
  },
  {
    defence: 'the keys in the messages of workers: their bytes stay in memory',
    file: 'lib/workers/remote-session.ts',
    edits: [
      {
        find: 'if (next?.secretId === epoch?.secretId) next?.keyBytes.fill(0);',
        replace: 'if (next?.secretId === epoch?.secretId) void next;',
      },
    ],
    tests: [
      {
        file: 'test/workers/remote-session.test.ts',
        names: [
          "a worker's half of the session keeps no key bytes: not of the epoch in use, of one told again, or of an answer nobody waits for",
        ],
      },
    ],
  },
  {
    defence: 'a clients file that is written in place: a mount keeps the old list',
    file: 'lib/files/overwrite.ts',
    edits: [
      { find: 'import { open, readFile, unlink }', replace: 'import { open, readFile, rename, unlink }' },
      { find: 'await put(Uint8Array.of(UNFINISHED), 0);', replace: 'return rename(beside, path);' },
    ],
    tests: [
      {
        file: 'test/commands/clients.test.ts',
        names: ['the file of --clients: is written in place, so that a mount, group and ACL of it stay'],
      },
    ],
  },
  {
    defence: 'the first byte of an unfinished clients file: a part of it is JSON',
    file: 'lib/files/overwrite.ts',
    edits: [{ find: 'await put(Uint8Array.of(UNFINISHED), 0);', replace: 'await file.sync();' }],
    tests: [
      {
        file: 'test/files/overwrite.test.ts',
        names: [
          'overwrite has the whole text beside the file before it changes it, and no JSON in the file until the end',
        ],
      },
    ],
  },
  {
    defence: 'the lock of the clients file: commands at once undo each other',
    file: 'lib/files/file-lock.ts',
    edits: [{ find: '0o644)) break;', replace: '0o644) !== undefined) break;' }],
    tests: [
      {
        file: 'test/commands/clients.test.ts',
        names: ['the file of --clients: loses no change of commands that run at once'],
      },
    ],
  },
  {
    defence: 'a clients file that is being written: the proxy reads it as it is',
    file: 'lib/clients/clients.ts',
    edits: [
      {
        find: 'if (next.equals(last) && next[0] !== UNFINISHED) return next;',
        replace: 'if (next.length > 0) return next;',
      },
    ],
    tests: [
      {
        file: 'test/clients/gateway.test.ts',
        names: [
          'the file of clients, while the gateway runs is waited for while it is written, and no part of it is taken',
        ],
      },
    ],
  },
  {
    defence: 'the list in force: one worker that has the new one stands for all',
    file: 'lib/commands/clients.ts',
    edits: [{ find: 'clientsFile.length === workers && clientsFile.every(', replace: 'clientsFile.some(' }],
    tests: [
      {
        file: 'test/commands/clients.test.ts',
        names: [
          'the file of --clients: with --admin-address revoke waits until every worker uses the new file',
        ],
      },
    ],
  },
  {
    defence: 'the options of a copy of a client: a fetch of its own has no pin',
    file: 'lib/client/privatemode-ai.ts',
    edits: [
      {
        find: '    sharedBy(this.#fetch, own);\n    return super.withOptions(sdk);',
        replace: '    return super.withOptions({ ...own, ...sdk });',
      },
    ],
    tests: [
      {
        file: 'test/client/options.test.ts',
        names: ['a client of the library shares its options with its copies, which cannot have others'],
      },
    ],
  },
  {
    defence: 'the label of a model: names that no model has use it up',
    file: 'lib/observe/metrics.ts',
    edits: [{ find: 'if (!good || known.size > most)', replace: 'if (known.size > most)' }],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics of requests use up no label of a model with names for which the service never answered',
        ],
      },
    ],
  },
  {
    defence: 'a long list of models: it is cut',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: 'if (size <= LONGEST_LIST) continue;', replace: 'if (size > 0) continue;' }],
    tests: [
      {
        file: 'test/gateway/model-aliases.test.ts',
        names: [
          '--model-alias with --clients refuses a list above 1 MiB, and never cuts it; without aliases it passes',
        ],
      },
    ],
  },
  {
    defence: 'a refused key of the operator: people are told to look at their own tokens',
    file: 'lib/gateway/own-key.ts',
    edits: [{ find: 'if (caller.client !== undefined) {', replace: 'if (deps === undefined) {' }],
    tests: [
      {
        file: 'test/gateway/own-key.test.ts',
        names: [
          'a key of the operator that the service refuses with --clients is told so where the session refuses requests',
        ],
      },
    ],
  },
];
