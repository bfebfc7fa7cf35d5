/** Faults in what keeps the clients of a team apart, and what listens for them. */
import type { Mutation } from './mutation.ts';

export const TEAM: readonly Mutation[] = [
  {
    defence: 'the error of a gateway: its flags and files are named to a developer, who has neither',
    file: 'lib/gateway/own-response.ts',
    edits: [
      {
        find: 'deps.clients === undefined || api !== undefined ? undefined : ERRORS[code].remedies.developer',
        replace: 'undefined',
      },
    ],
    tests: [
      {
        file: 'test/access/gateway.test.ts',
        names: [
          'an error that a client of the gateway cannot resolve asks the client to tell the operator, and names no flag',
        ],
      },
    ],
  },
  {
    defence: 'the throttle of strangers: they may guess tokens as fast as they can',
    file: 'lib/access/authenticate.ts',
    edits: [{ find: 'return window.failures > MOST_FAILURES;', replace: 'return window.failures < 0;' }],
    tests: [
      {
        file: 'test/access/authenticate.test.ts',
        names: [
          'requests without a known token get client_throttled after 20 failures in a minute, and no longer in the next minute',
          'requests without a known token from ::ffff:10.0.0.1 and 10.0.0.1 are counted together',
        ],
      },
    ],
  },
  {
    defence: 'the expiry of a client: its tokens stay good',
    file: 'lib/access/authenticate.ts',
    edits: [
      {
        find: '!(found.expires !== undefined && now >= found.expires)',
        replace: '!(found.expires !== undefined && now < 0)',
      },
    ],
    tests: [
      {
        file: 'test/access/authenticate.test.ts',
        names: ['authentication of a client refuses a client from its expiry on'],
      },
    ],
  },
  {
    defence: 'the models of a client: it may use any',
    file: 'lib/access/authenticate.ts',
    edits: [
      {
        find: 'models.some((pattern) => covers(pattern, model))',
        replace: 'models.some((pattern) => covers(pattern, model) || model.length > 0)',
      },
    ],
    tests: [
      {
        file: 'test/access/authenticate.test.ts',
        names: [
          'a client may not use the model "gpt-2" if its models are gpt',
          'a client may not use the model "a-gpt-4" if its models are gpt-*',
          'a client may not use the model "acb" if its models are a*b*c',
        ],
      },
    ],
  },
  {
    defence: 'a certificate and a token of two clients: the certificate decides',
    file: 'lib/access/authenticate.ts',
    edits: [
      {
        find: 'return !bringsToken || byToken === holder',
        replace: 'return !bringsToken || byToken !== undefined',
      },
    ],
    tests: [
      {
        file: 'test/access/certificates.test.ts',
        names: [
          'a gateway with certificates and tokens a token of another client than the certificate names is refused: the token is not one of the client that the certificate names',
          'a gateway with certificates and tokens a token of another client than the certificate names, as x-api-key, is refused: the token is not one of the client that the certificate names',
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
          'the limit requestsPerMinute admits its number of requests within any 60 s, and one more exactly 60 s after the first',
          'the limit requestsPerMinute admits with the value 1 one request, and the next one 60 s later',
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
        names: ['the queue of --max-in-flight frees a place once, however often its request returns it'],
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
          'the queue of --max-in-flight keeps a sixteenth of 8 or more places, rounded up, free for clients that have nothing running',
          'the queue of --max-in-flight gives a client with one request at a time a place at once while another client sends hundreds',
        ],
      },
    ],
  },
  {
    defence: 'the pair of certificate and key: the two may belong to others',
    file: 'lib/listener/tls.ts',
    edits: [
      { find: 'if (!certificate.checkPrivateKey(privateKey)) throw', replace: 'if (Date.now() < 0) throw' },
    ],
    tests: [
      {
        file: 'test/listener/tls.test.ts',
        names: [
          'certificate and key files are refused at the start with config_invalid: a key of another certificate',
          'certificate and key files are refused at the start with config_invalid: a certificate for another key',
        ],
      },
    ],
  },
  {
    defence: 'the CAs of clients: the certificate of a client may be one',
    file: 'lib/listener/tls.ts',
    edits: [{ find: 'if (!certificates.every(({ ca }) => ca))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/access/certificates.test.ts',
        names: [
          'the file of --tls-client-ca is refused with the certificate of a client at the start; on a reload, the old CAs stay in force',
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
          'the gate of the primary, asked by workers frees the places that a worker held and waited for when the worker is gone, and ignores its late messages',
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
          "a worker's half of the session overwrites the key bytes of the epoch in use, of an epoch sent again, and of an answer to no request",
        ],
      },
    ],
  },
  {
    defence: 'the keys of clients: a worker keeps from the primary the one that could renew',
    file: 'lib/workers/remote-session.ts',
    edits: [
      {
        find: 'if (isMissed && clock.now() >= ready.renewAt)',
        replace: 'if (isMissed && clock.now() < 0)',
      },
    ],
    tests: [
      {
        file: 'test/workers/remote-session.test.ts',
        names: [
          "a worker's half of the session passes the key of a client on if its epoch is due and the primary has no key to renew with",
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
        names: ['privatemode-proxy clients writes the file in place, so that its mount, group and ACL stay'],
      },
    ],
  },
  {
    defence: 'clients new: a key file without a key makes the gateway refuse the whole list',
    file: 'lib/commands/clients.ts',
    edits: [
      { find: "readApiKey({ kind: 'file', path: keyPath }, undefined, '--api-key-file');", replace: '' },
    ],
    tests: [
      {
        file: 'test/commands/clients.test.ts',
        names: [
          'privatemode-proxy clients in a file in which every client has an apiKey new refuses a key file that holds no key, and leaves the file as it was',
        ],
      },
    ],
  },
  {
    defence: 'a file beside the clients file: a command deletes it, or leaves a part of the list',
    file: 'lib/files/overwrite.ts',
    edits: [
      { find: '.privatemode-proxy-new', replace: '.new' },
      { find: 'await unlink(beside).catch(() => {});', replace: '' },
    ],
    tests: [
      {
        file: 'test/files/overwrite.test.ts',
        names: [
          'overwrite leaves nothing if the copy cannot be written, and a file of the operator with .new at its end',
        ],
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
          'overwrite writes the whole text to a copy first, and keeps the file invalid as JSON while it writes the file',
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
        names: ['privatemode-proxy clients loses no change of 13 commands that run at the same time'],
      },
    ],
  },
  {
    defence: 'a clients file that is being written: the proxy reads it as it is',
    file: 'lib/access/clients-file.ts',
    edits: [
      {
        find: 'if (next.equals(last) && next[0] !== UNFINISHED) return next;',
        replace: 'if (next.length > 0) return next;',
      },
    ],
    tests: [
      {
        file: 'test/access/gateway.test.ts',
        names: [
          'the file of clients, while the gateway runs takes effect once it is written completely, and no part of it before',
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
          'privatemode-proxy clients with --admin-address revoke waits until every worker uses the new file',
        ],
      },
    ],
  },
  {
    defence: 'the options of a copy of a client: a fetch of its own has no pin',
    file: 'lib/client-library/privatemode-ai.ts',
    edits: [
      {
        find: '    sharedBy(this.#fetch, own);\n    return super.withOptions(sdk);',
        replace: '    return super.withOptions({ ...own, ...sdk });',
      },
    ],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: [
          'a client of the library shares options and verification with its copies, and refuses a copy with another key, host or manifest',
        ],
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
          'metrics of requests count a model name for which the service never answered under the label "other"',
        ],
      },
    ],
  },
  {
    defence: 'a forged list of models: what it adds stays until the next start',
    file: 'lib/api/model-aliases.ts',
    edits: [{ find: '...(isWhole ? [] : real)', replace: '...real' }],
    tests: [
      {
        file: 'test/gateway/model-aliases.test.ts',
        names: [
          'the aliases of a table apply again once a whole list lacks the model; a page and an empty list take no model away',
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
          'a gateway with --model-alias answers 502 for a list of models above 1 MiB, which passes without aliases',
        ],
      },
    ],
  },
  {
    defence: 'the budget of tokens: a client that leaves a stream at its finish spends nothing',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [{ find: 'if (usageStart >= 0) this', replace: 'if (usageStart >= 0 && isClosing) this' }],
    tests: [
      {
        file: 'test/limits/gate.test.ts',
        names: [
          'the permit of a request is released once, with its count of tokens after the client left a stream at its finish, before the closing chunk: 12 tokens',
        ],
      },
    ],
  },
  {
    defence: 'a refused key of the operator: people are told to look at their own tokens',
    file: 'lib/gateway/refused-key.ts',
    edits: [{ find: 'if (caller.client !== undefined) {', replace: 'if (deps === undefined) {' }],
    tests: [
      {
        file: 'test/gateway/own-key.test.ts',
        names: [
          "an operator's key that the service refuses makes a request 400 under --clients also if the session fails with api_key_rejected",
        ],
      },
    ],
  },
];
