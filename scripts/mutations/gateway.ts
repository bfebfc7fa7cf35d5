/** Faults in what a client or a network can do to the gateway. */
import type { Mutation } from './mutation.ts';

export const GATEWAY: readonly Mutation[] = [
  {
    defence: 'the origin check: any web page may ask',
    file: 'lib/gateway/admission.ts',
    edits: [{ find: 'else if (foreign !== undefined) throw foreign;', replace: '' }],
    tests: [
      {
        file: 'test/gateway/admission.test.ts',
        names: [
          'a foreign page passes only if it sends neither Origin nor Sec-Fetch-Site, and sets a key or User-Agent',
        ],
      },
    ],
  },
  {
    defence: 'the size of a body that does not announce it: there is no limit',
    file: 'lib/gateway/receive.ts',
    edits: [{ find: 'if (body.length + chunk.length > most) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/gateway/early-refusals.test.ts',
        names: [
          'refusals before the end of the upload a chunked body is refused with 413 as soon as it exceeds the limit',
        ],
      },
    ],
  },
  {
    defence: 'the encoding of a body: compressed bytes are taken for JSON',
    file: 'lib/gateway/receive.ts',
    edits: [
      {
        find: "if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {",
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: 'test/gateway/early-refusals.test.ts',
        names: [
          'refusals before the end of the upload a compressed body is refused, whichever header says so',
        ],
      },
    ],
  },
  {
    defence: 'the memory of uploads: large ones may take all of it',
    file: 'lib/gateway/memory.ts',
    edits: [{ find: 'limit * FOR_LARGE', replace: 'limit' }],
    tests: [
      {
        file: 'test/gateway/memory.test.ts',
        names: ['the memory of bodies has an eighth reserved for small bodies'],
      },
    ],
  },
  {
    defence: 'the credentials in a dump: they are written down',
    file: 'lib/gateway/request-dump.ts',
    edits: [{ find: 'if (isCredential(name)) return REDACTED;', replace: '' }],
    tests: [
      {
        file: 'test/gateway/request-dump.test.ts',
        names: ['request dumps show no header that may be a credential, whatever its name'],
      },
    ],
  },
  {
    defence: 'the end of a broken response: it looks like that of a whole one',
    file: 'lib/gateway/own-response.ts',
    edits: [{ find: 'socket.resetAndDestroy();', replace: 'socket.end();' }],
    tests: [
      {
        file: 'test/gateway/broken-streams.test.ts',
        names: ['broken streams end over HTTP/1.0 with the error and a reset of the connection'],
      },
    ],
  },
  {
    defence: 'DNS rebinding: a key that is replaced counts as proof of a client',
    file: 'lib/gateway/admission.ts',
    edits: [{ find: '!isReplaced({ ...sent, configuredKey: deps.key.value(), fallback })', replace: 'true' }],
    tests: [
      {
        file: 'test/gateway/admission.test.ts',
        names: [
          'a foreign page passes only if it sends neither Origin nor Sec-Fetch-Site, and sets a key or User-Agent',
        ],
      },
    ],
  },
  {
    defence: 'a client that reads nothing: it keeps its place',
    file: 'lib/gateway/gateway.ts',
    edits: [
      {
        find: "    res.on('timeout', (socket: Socket) => endUnread(exchange, socket));",
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/gateway/slow-readers.test.ts',
        names: [
          'the place of a client is freed if the client reads nothing of a whole response, and the log says why',
        ],
      },
    ],
  },
  {
    defence: 'a client that reads nothing and sends line ends: it keeps its place',
    file: 'lib/gateway/app-response.ts',
    edits: [{ find: 'if (!hasRoom) this.#holdClient();', replace: '' }],
    tests: [
      {
        file: 'test/gateway/slow-readers.test.ts',
        names: [
          'the place of a client is freed if the client reads nothing of a whole response, and the log says why',
        ],
      },
    ],
  },
  {
    defence: 'an upload that goes on: with it a service keeps a response open that is silent',
    file: 'lib/network/upstream.ts',
    edits: [{ find: 'if (!isSettled) deadline.refresh();', replace: 'deadline.refresh();' }],
    tests: [
      {
        file: 'test/gateway/time-limits.test.ts',
        names: [
          'time-outs towards the remote a remote that has begun its response and still reads the upload is cut after --stream-idle-timeout',
        ],
      },
    ],
  },
  {
    defence: 'a proxy without a key: a client whose key is `undefined` passes for the operator',
    file: 'lib/pipeline/rewrite-auth.ts',
    edits: [
      {
        find: 'authorization === bearer(configuredKey);',
        replace: 'authorization === "Bearer " + configuredKey;',
      },
    ],
    tests: [
      {
        file: 'test/gateway/own-key.test.ts',
        names: [
          "an operator's key that the service refuses is handled differently from a client's own key, whose 401 keeps the text of the service",
        ],
      },
    ],
  },
  {
    defence: 'an error of a gateway without the mark of a plain error: it counts as tampering',
    file: 'lib/gateway/exchange.ts',
    edits: [{ find: ' || (error instanceof ForeignError && !error.opened)', replace: '' }],
    tests: [
      {
        file: 'test/gateway/errors.test.ts',
        names: [
          'an error of the service keeps its status and its Retry-After, but not its text, and does not say that it was tampered with, if it is neither sealed nor declared plain',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: after an error of the service the connection ends as after a whole response',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: '(translator === undefined || !decrypter.modelError)', replace: '(Date.now() > 0)' }],
    tests: [
      {
        file: 'test/gateway/responses-api.test.ts',
        names: [
          'POST /v1/responses completes no tool call of a stream with the fault error_event:2, and breaks the connection to the client, as log and receipt say',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: what a response repeats takes memory that nobody reserved',
    file: 'lib/gateway/forward.ts',
    edits: [{ find: 'exchange.responseRoom.grow(translator.held());', replace: '' }],
    tests: [
      {
        file: 'test/gateway/memory.test.ts',
        names: [
          'memory for the parts of a request that its translated response repeats is reserved before the request is sent, and freed when the client leaves',
        ],
      },
    ],
  },
  {
    defence:
      'the memory of a body: what is announced is taken before it comes, and a few slow uploads shut out all',
    file: 'lib/gateway/memory.ts',
    edits: [
      { find: 'Math.min(Math.max(2 * outgrown.length, FIRST_BYTES), this.#most)', replace: 'this.#most' },
    ],
    tests: [
      {
        file: 'test/gateway/memory.test.ts',
        names: [
          'a body that is collected takes memory as it arrives, twice its bytes at most and never more than was announced',
        ],
      },
    ],
  },
  {
    defence: 'a body that was refused: its memory is never given back',
    file: 'lib/gateway/receive.ts',
    edits: [{ find: '    body.release();\n    throw thrown;', replace: '    throw thrown;' }],
    tests: [
      {
        file: 'test/gateway/receive.test.ts',
        names: ['a body that is received gives its memory back when it is refused'],
      },
    ],
  },
  {
    defence: 'the longest pause: a host may keep the proxy waiting for as long as it likes',
    file: 'lib/network/control-call.ts',
    edits: [{ find: ', times.longestPause / 1000) *', replace: ', Infinity) *' }],
    tests: [
      {
        file: 'test/network/control-call.test.ts',
        names: [
          'the pause that a host wants is what Retry-After says within a second and a minute, and up to a fifth longer',
        ],
      },
    ],
  },
  {
    defence: 'a redirect of the control path: a key may go elsewhere',
    file: 'lib/network/outbound.ts',
    edits: [
      {
        find: 'const redirect = status >= 300 && status < 400;',
        replace: 'const redirect = status < 0;',
      },
    ],
    tests: [{ file: 'test/network/control-call.test.ts', names: ['http call follows no redirect'] }],
  },
  {
    defence:
      'a connection that is ready: what the service says unasked is taken for the answer to the next request',
    file: 'lib/network/agent.ts',
    edits: [{ find: ".on('data', refuseUnasked)", replace: '' }],
    tests: [
      {
        file: 'test/network/agent.test.ts',
        names: [
          'connections that are kept ready are replaced if the service closes them, or sends bytes before a request',
        ],
      },
    ],
  },
  {
    defence: 'a machine that slept: a request goes out on a connection whose other end is gone',
    file: 'lib/network/agent.ts',
    edits: [{ find: 'of [...kept, ...this.#ahead]', replace: 'of this.#ahead' }],
    tests: [
      {
        file: 'test/network/agent.test.ts',
        names: [
          'connections that are kept ready carry no request after the machine slept, or the clock was set back: one that Node kept',
        ],
      },
    ],
  },
  {
    defence: 'a request that has an answer: it is sent a second time',
    file: 'lib/network/failures.ts',
    edits: [
      {
        find: 'if (heard) return new UpstreamFailure(error);',
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/network/failures.test.ts',
        names: [
          'an attempt that failed before a response is retried only if nothing of a response can have been lost',
        ],
      },
    ],
  },
  {
    defence: 'a new connection to the service: it resumes a TLS session, and its certificate is not checked',
    file: 'lib/network/outbound.ts',
    edits: [{ find: ', maxCachedSessions: 0 }', replace: ' }' }],
    tests: [
      {
        file: 'test/network/outbound.test.ts',
        names: [
          'connections to a service are kept alive on the data path, and new ones resume no TLS session, directly and through a proxy',
        ],
      },
    ],
  },
  {
    defence: 'a damaged file of collateral: it is taken for what the vendor signed',
    file: 'lib/network/collateral-store.ts',
    edits: [
      {
        find: "if (digest !== hash('sha256', text)) return undefined;",
        replace: 'if (digest === text) return undefined;',
      },
    ],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral: VCEK is not taken from a file that is damaged in any way, and is fetched again',
          'collateral: TCB info is not taken from a file that is damaged in any way, and is fetched again',
          'collateral: QE identity is not taken from a file that is damaged in any way, and is fetched again',
          'collateral: AMD CRL is not taken from a file that is damaged in any way, and is fetched again',
        ],
      },
    ],
  },
  {
    defence: 'SSL_CERT_FILE: others than those in the file are trusted too',
    file: 'lib/network/outbound.ts',
    edits: [
      {
        find: 'return certificates;',
        replace: "return [...certificates, ...getCACertificates('bundled')];",
      },
    ],
    tests: [
      {
        file: 'test/network/outbound.test.ts',
        names: ['trust store is exactly the file that SSL_CERT_FILE names'],
      },
    ],
  },
  {
    defence: 'the length of an answer on the control path of the library: there is no limit',
    file: 'lib/network/control-call.ts',
    edits: [{ find: 'if (size > most)', replace: 'if (size < 0)' }],
    tests: [
      {
        file: 'test/client-library/control-call.test.ts',
        names: [
          'the control path of the library accepts a response of exactly maxBytes, and refuses one byte more without reading on',
        ],
      },
    ],
  },
  {
    defence: 'a port that systemd opened: a proxy that should have a socket file serves every user on it',
    file: 'lib/listener/listen.ts',
    edits: [{ find: "port === 0 ? tls : 'path' in at", replace: 'port === 0 && tls' }],
    tests: [
      {
        file: 'test/config/inherited-socket.test.ts',
        names: [
          'a proxy on a socket that systemd opened does not start on a port if --listen-address names a socket file, which would keep other users out',
        ],
      },
    ],
  },
  {
    defence: 'a response that breaks off over HTTP/1.0 and TLS: it ends like a whole one',
    file: 'lib/listener/connections.ts',
    edits: [{ find: 'accepted.resetAndDestroy()', replace: 'socket.destroy()' }],
    tests: [
      {
        file: 'test/listener/tls.test.ts',
        names: [
          'TLS ends a response that breaks off with a reset over HTTP/1.0, where a close would look like its end',
        ],
      },
    ],
  },
  {
    defence: 'the connection of a CONNECT: its reset ends the process',
    file: 'lib/listener/connections.ts',
    edits: [{ find: "    socket.on('error', () => {});\n", replace: '' }],
    tests: [
      {
        file: 'test/gateway/hostile-framing.test.ts',
        names: ['a CONNECT whose connection is reset does not end the proxy'],
      },
    ],
  },
  {
    defence: 'a socket file: others may connect before it has its mode',
    file: 'lib/listener/listen.ts',
    edits: [{ find: 'process.umask(0o177)', replace: 'process.umask(0o022)' }],
    tests: [
      {
        file: 'test/listener/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file creates the file with mode 0600, whatever the umask, and changes no mode through a link in its place',
        ],
      },
    ],
  },
];
