/** Faults in what decides about a request, and what of it leaves. */
import type { Mutation } from './mutation.ts';

export const REQUESTS: readonly Mutation[] = [
  {
    defence: 'the header allow-list: whatever the client sends goes on',
    file: 'lib/exchange/headers.ts',
    edits: [{ find: '(name) => TO_REMOTE.has(name),', replace: "(name) => name !== ''," }],
    tests: [
      {
        file: 'test/faults/hygiene.test.ts',
        names: ['prompt, key and secret leave no trace after headers that tell who asks'],
      },
    ],
  },
  {
    defence: "the application's own head: that of the upstream request stays in its place",
    file: 'lib/network/upstream.ts',
    edits: [{ find: '        Object.assign(req, { method, url, headers });\n', replace: '' }],
    tests: [
      {
        file: 'test/network/upstream.test.ts',
        names: [
          "the application's request has its own head as soon as an attempt is under way",
          "the application's request has its own head although an attempt could not begin",
        ],
      },
      {
        file: 'test/gateway/upstream-request.test.ts',
        names: [
          'the request of the application, while another goes upstream for it is logged and counted as HEAD where GET went upstream',
          'the request of the application, while another goes upstream for it says in which form an error is told, by an Accept that goes no further',
          'the request of the application, while another goes upstream for it is read on to the end of its own length, where the answer comes before that',
        ],
      },
    ],
  },
  {
    defence: 'the plain members: any text may travel in them, in clear',
    file: 'lib/pipeline/json/plain-values.ts',
    edits: [
      {
        find: 'if (!isShort || !holds(kind, textOf(chain, member))) throw',
        replace: 'if (Date.now() < 0) throw',
      },
    ],
    tests: [
      {
        file: 'test/pipeline/request-body.test.ts',
        names: [
          'a JSON request body, what plain members may hold is what the rule of the member says; all else is refused by its name, and never quoted',
        ],
      },
    ],
  },
  {
    defence: 'the rule for each plain member: one more leaves in clear, whatever it holds',
    file: 'lib/pipeline/json/plain-values.ts',
    edits: [{ find: 'if (!JUDGED[codec].includes(name)) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/pipeline/request-body.test.ts',
        names: [
          'a plain member without a rule makes its endpoint take no request: json',
          'a plain member without a rule makes its endpoint take no request: multipart',
        ],
      },
    ],
  },
  {
    defence: 'the encrypted members: the messages leave in clear',
    file: 'lib/pipeline/json/member-names.ts',
    edits: [
      {
        find: 'if (!plain.has(item.name)) keyed.push(',
        replace: "if (!plain.has(item.name) && item.name !== 'messages') keyed.push(",
      },
    ],
    tests: [
      {
        file: 'test/pipeline/json/encrypt-members.test.ts',
        names: [
          'JSON sealing, golden bodies chat-basic',
          'JSON sealing, golden bodies chat-literals',
          'JSON sealing, golden bodies chat-escaped-plain-key',
        ],
      },
    ],
  },
  {
    defence: 'the URLs of images: the service may refuse one, and quote it in clear',
    file: 'lib/pipeline/media-scan.ts',
    edits: [{ find: 'if ((found & IMAGE) !== 0) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/pipeline/media-urls.test.ts',
        names: [
          'media URLs refuses an http image, without quoting it',
          'media URLs refuses a file image, without quoting it',
          'media URLs refuses an image without a scheme, without quoting it',
        ],
      },
    ],
  },
  {
    defence: 'the mark on a success: one that is not encrypted is shown',
    file: 'lib/exchange/response-head.ts',
    edits: [{ find: "if (status >= 400) return 'plain';", replace: "if (status >= 200) return 'plain';" }],
    tests: [
      {
        file: 'test/exchange/response-head.test.ts',
        names: ['the head of an upstream answer: a success that says it is plain: response_not_encrypted'],
      },
    ],
  },
  {
    defence: 'the length of a tag: OpenSSL accepts one of four bytes',
    file: 'lib/crypto/node/aead.ts',
    edits: [
      { find: 'if (tag.length !== TAG_BYTES) return undefined;', replace: '' },
      { find: 'const GCM_OPTIONS = { authTagLength: TAG_BYTES };', replace: 'const GCM_OPTIONS = {};' },
    ],
    tests: [
      {
        file: 'test/crypto/aead.test.ts',
        names: ['AES-256-GCM refuses tags of fewer than 16 bytes, down to none'],
      },
    ],
  },
  {
    defence: 'the length of a signature: one without its leading zeros is good',
    file: 'lib/crypto/node/signature.ts',
    edits: [
      {
        find: 'if (8 * signature.length !== key.asymmetricKeyDetails?.modulusLength) return false;',
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/crypto/signature.test.ts',
        names: ['RSASSA-PSS with SHA-384 refuses a signature without its leading zero (RFC 8017 8.1.2)'],
      },
    ],
  },
  {
    defence: 'the origin check: any web page may ask',
    file: 'lib/gateway/admission.ts',
    edits: [{ find: 'if (foreign !== undefined) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/gateway/errors.test.ts',
        names: [
          'the gateway, before anything leaves, refuses a request of a web page of another origin (Origin: https://evil.example): 403 origin_forbidden',
          'the gateway, before anything leaves, refuses a request of a web page of another origin (Sec-Fetch-Site: cross-site): 403 origin_forbidden',
        ],
      },
    ],
  },
  {
    defence: 'the size of a body that does not announce it: there is no limit',
    file: 'lib/gateway/receive-body.ts',
    edits: [{ find: 'if (bytes.fromClient > most.bytes) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/gateway/early-refusals.test.ts',
        names: [
          'refusals before the end of the upload a chunked body over the limit is refused when it gets there',
        ],
      },
    ],
  },
  {
    defence: 'the encoding of a body: compressed bytes are taken for JSON',
    file: 'lib/gateway/receive-body.ts',
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
          'refusals before the end of the upload with Expect a body that is compressed gets no 100, and never travels',
          'refusals before the end of the upload a compressed body is refused',
          'refusals before the end of the upload a body that is compressed below its chunks is refused',
        ],
      },
    ],
  },
  {
    defence: 'a waiting line: who has waited too long stays in it, and everybody behind waits for ever',
    file: 'lib/limits/waiting-line.ts',
    edits: [{ find: 'return this.delete(waiting);', replace: 'return this.has(waiting);' }],
    tests: [
      {
        file: 'test/gateway/memory-budget.test.ts',
        names: [
          'the memory of uploads gives up a body that waited too long, and lets in those that it held up',
        ],
      },
    ],
  },
  {
    defence: 'the memory of uploads: large ones may take all of it',
    file: 'lib/gateway/memory-budget.ts',
    edits: [{ find: 'limit * FOR_LARGE', replace: 'limit' }],
    tests: [
      {
        file: 'test/gateway/memory-budget.test.ts',
        names: ['the memory of uploads keeps an eighth for small bodies, which pass large ones that wait'],
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
        names: [
          'request dumps the header Authorization is redacted',
          'request dumps the header Proxy-Authorization is redacted',
          'request dumps the header X-Api-Key is redacted',
          'request dumps the header Cookie is redacted',
        ],
      },
    ],
  },
  {
    defence: 'the end of a broken response: it looks like that of a whole one',
    file: 'lib/gateway/own-response.ts',
    edits: [{ find: 'else socket.resetAndDestroy();', replace: 'else socket.end();' }],
    tests: [
      {
        file: 'test/gateway/broken-streams.test.ts',
        names: [
          'broken streams HTTP/1.0 has no chunks: the error arrives and the connection is reset, not closed',
        ],
      },
    ],
  },
  {
    defence: 'the segments of a path: it may lead elsewhere than it seems to',
    file: 'lib/api/match-endpoint.ts',
    edits: [
      {
        find: "if (segments.includes('.') || segments.includes('..')) return",
        replace: 'if (Date.now() < 0) return',
      },
    ],
    tests: [
      {
        file: 'test/api/endpoints.test.ts',
        names: [
          'targets that another parser reads differently are refused "/unstructured/../v1/chat/completions"',
          'targets that another parser reads differently are refused "/unstructured/.."',
          'targets that another parser reads differently are refused "/unstructured/%2e%2e/v1/chat/completions"',
          'targets that another parser reads differently are refused "/v1/models/.."',
        ],
      },
    ],
  },
  {
    defence: 'the parameters of a query: all of them leave, in clear',
    file: 'lib/api/match-endpoint.ts',
    edits: [
      {
        find: "const kept = parameters.filter(isKept).join('&');",
        replace: "const kept = parameters.join('&');",
      },
    ],
    tests: [
      {
        file: 'test/api/endpoints.test.ts',
        names: [
          'forwarded endpoints: POST /v1/messages?beta=true&api_key=k goes out as /v1/messages?beta=true',
          'forwarded endpoints: POST /v1/messages?beta=1;key=k goes out as /v1/messages',
          'forwarded endpoints: GET /v1/models?limit=2&key=k&after=m%2F1&after_id=a&before_id=b&order=desc goes out as /v1/models?limit=2&after=m%2F1&after_id=a&before_id=b&order=desc',
        ],
      },
    ],
  },
  {
    defence: 'DNS rebinding: a key that is replaced counts as proof of a client',
    file: 'lib/gateway/admission.ts',
    edits: [{ find: '!isReplaced({ ...sent, configuredKey: configuredKey(), fallback })', replace: 'true' }],
    tests: [
      {
        file: 'test/gateway/cors.test.ts',
        names: [
          'whatever a foreign page sets, it gets nothing without a key that decides, and the admin listener knows no key',
        ],
      },
    ],
  },
  {
    defence: 'pipelined requests: all of a connection run at once',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: 'if (res.socket !== null) return', replace: 'return' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: ['pipelined requests one of a connection is open at a time, and all are begun in their order'],
      },
    ],
  },
  {
    defence: 'pipelined requests: any number may wait',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: 'waiting.length > MOST_WAITING ||', replace: '' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: ['pipelined requests where more than 4,096 of them wait, the connection is ended'],
      },
    ],
  },
  {
    defence: 'pipelined requests: any number of bytes may wait',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: '|| socket.bytesRead - readBefore > MOST_WAITING_BYTES', replace: '' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: ['pipelined requests where more than 4 MiB of them wait, the connection is ended'],
      },
    ],
  },
  {
    defence: 'pipelined requests: begun after their connection has ended',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: 'if (socket.writable) begin', replace: 'begin' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: [
          'pipelined requests one whose connection ends right after the response before it is not begun',
        ],
      },
    ],
  },
  {
    defence: 'pipelined requests: a connection with many is read as fast as it brings them',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: '      if (line.newest !== undefined) socket.pause();\n', replace: '' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: ['pipelined requests of a connection with many, one read is parsed in a turn'],
      },
    ],
  },
  {
    defence: 'pipelined requests: the body of one that waits is read without a limit',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: "      if (socket.isPaused()) socket.emit('pause');\n", replace: '' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: [
          'pipelined requests the body of one that waits is not read beyond its buffer, and is whole once it is begun',
        ],
      },
    ],
  },
  {
    defence: 'pipelined requests: all connections with many are read in each turn',
    file: 'lib/gateway/pipelined-requests.ts',
    edits: [{ find: 'inTurn(() => readOn(socket, line))', replace: 'setImmediate(readOn, socket, line)' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: [
          'pipelined requests connections with many take turns: eight of them are read as often as one',
        ],
      },
    ],
  },
  {
    defence: 'short pieces: each enters its stream by itself',
    file: 'lib/network/join-pieces.ts',
    edits: [{ find: '(pieces.count <= pieces.few && pieces.bytes === 0)', replace: 'true' }],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: [
          'pipelined requests short pieces of one that waits are joined: each would cost hundreds of bytes',
        ],
      },
    ],
  },
  {
    defence: 'short pieces: any number is parsed in a turn',
    file: 'lib/network/join-pieces.ts',
    edits: [{ find: 'return !waits;', replace: 'return true;' }],
    tests: [
      {
        file: 'test/gateway/hostile-pieces.test.ts',
        names: [
          'bodies in pieces of one byte raw bytes: at most three times its size in memory, and one read in a turn',
        ],
      },
    ],
  },
  {
    defence: 'short pieces: all senders of many are read in each turn',
    file: 'lib/network/join-pieces.ts',
    edits: [
      { find: 'else inTurn(() => readOn(message, pieces));', replace: 'else readOn(message, pieces);' },
    ],
    tests: [
      {
        file: 'test/gateway/hostile-pieces.test.ts',
        names: [
          'bodies in pieces of one byte take turns with each other: eight of them are read as often as one',
        ],
      },
    ],
  },
  {
    defence: 'short pieces: a long one among them has the stream ask for more',
    file: 'lib/network/join-pieces.ts',
    edits: [{ find: 'const passes = !waits && ', replace: 'const passes = ' }],
    tests: [
      {
        file: 'test/gateway/hostile-pieces.test.ts',
        names: [
          'bodies in pieces of one byte are read in turns where each read ends with a long one, which has the stream ask for more',
        ],
      },
    ],
  },
  {
    defence: 'short pieces: a stream that has enough gets more of them',
    file: 'lib/network/join-pieces.ts',
    edits: [
      {
        find: 'if (!pushHeld(message, pieces)) message.socket.pause();',
        replace: 'pushHeld(message, pieces);',
      },
    ],
    tests: [
      {
        file: 'test/gateway/pipelined.test.ts',
        names: [
          'pipelined requests the body in short pieces of one that waits is not read beyond its buffer, and is whole once it is begun',
        ],
      },
    ],
  },
  {
    defence: 'a client that reads nothing: it keeps its place',
    file: 'lib/gateway/gateway.ts',
    edits: [{ find: '    readers.enter(exchange);', replace: '' }],
    tests: [
      {
        file: 'test/gateway/slow-readers.test.ts',
        names: ['a client that takes nothing of a whole response loses its place, and the log says why'],
      },
    ],
  },
];
