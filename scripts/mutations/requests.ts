/** Faults in what decides about a request, and what of it leaves. */
import type { Mutation } from './mutation.ts';

export const REQUESTS: readonly Mutation[] = [
  {
    defence: 'the refusal of web search: a tool is judged by its name as well',
    file: 'lib/pipeline/web-tools.ts',
    edits: [
      {
        find: "isType = isKey && text === 'type';",
        replace: 'isType = isKey && /^(?:type|name)$/.test(text);',
      },
    ],
    tests: [
      {
        file: 'test/pipeline/web-tools.test.ts',
        names: [
          "Anthropic's web search tool is not recognised in a tool of that name, of type custom, which passes",
        ],
      },
    ],
  },
  {
    defence: 'the header allow-list: whatever the client sends goes on',
    file: 'lib/http-rules/headers.ts',
    edits: [{ find: '(name) => TO_REMOTE.has(name),', replace: "(name) => name !== ''," }],
    tests: [
      {
        file: 'test/faults/hygiene.test.ts',
        names: ['prompt, key and secret are in no output, log line or file after headers that tell who asks'],
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
          "the application's request has its own method, URL and headers while an attempt runs and after it",
          "the application's request has its own method, URL and headers after an attempt that could not begin",
        ],
      },
      {
        file: 'test/gateway/upstream-request.test.ts',
        names: [
          "the client's request, while the gateway's own goes upstream is logged and counted as HEAD even though a GET is sent upstream",
          "the client's request, while the gateway's own goes upstream determines the format of an error by its Accept even if Accept is not forwarded",
          "the client's request, while the gateway's own goes upstream is read to the end of its Content-Length even if the response comes earlier",
        ],
      },
    ],
  },
  {
    defence: 'the key of a request: one for another vendor leaves beside an empty Authorization',
    file: 'lib/pipeline/rewrite-auth.ts',
    edits: [{ find: 'authorization ?? (apiKeyHeader', replace: 'authorization || (apiKeyHeader' }],
    tests: [
      {
        file: 'test/pipeline/rewrite-auth.test.ts',
        names: [
          "the key of a request is the client's, if any, without a configured key and with --api-key-fallback=never, when the client sends an empty Authorization, which still counts alone, and x-api-key",
        ],
      },
    ],
  },
  {
    defence: 'the plain members: any text may travel in them, in clear',
    file: 'lib/pipeline/json/unencrypted-members.ts',
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
          'the value of a plain member of a JSON request body passes if the rule of its member allows it, and else is refused by an error that names the member only',
        ],
      },
    ],
  },
  {
    defence: 'the model name: blanks around it, which the header of the same name loses',
    file: 'lib/pipeline/json/unencrypted-members.ts',
    edits: [{ find: '/^ | $|[', replace: '/[' }],
    tests: [
      {
        file: 'test/pipeline/request-body.test.ts',
        names: ['begins', 'ends'].map(
          (where) =>
            `a JSON request body is refused with a 400 as invalid_model if the model ${where} with a blank`,
        ),
      },
      {
        file: 'test/pipeline/encrypt-form.test.ts',
        names: ['before', 'behind'].map(
          (where) => `a form is refused with a 400 as invalid_model for a model with a blank ${where} it`,
        ),
      },
    ],
  },
  {
    defence: 'the rule for each plain member: one more leaves in clear, whatever it holds',
    file: 'lib/pipeline/json/unencrypted-members.ts',
    edits: [{ find: 'if (!JUDGED[codec].includes(name)) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/pipeline/request-body.test.ts',
        names: [
          'a plain member makes its endpoint refuse every request if it has no rule: json',
          'a plain member makes its endpoint refuse every request if it has no rule: multipart',
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
          'a JSON body of the vectors is sealed as expected: chat-basic',
          'a JSON body of the vectors is sealed as expected: chat-literals',
          'a JSON body of the vectors is sealed as expected: chat-escaped-plain-key',
        ],
      },
    ],
  },
  {
    defence: 'the check of media URLs while the body arrives: it reads the whole body at the end',
    file: 'lib/pipeline/request-body.ts',
    edits: [
      { find: 'const visitors = [media, webTools,', replace: 'const visitors = [webTools,' },
      {
        find: '      media?.check();',
        replace:
          'const late = createJsonIndex({ visitors: media ? [media] : [] });' +
          'for (const slice of chain.slices(0, chain.length)) late.feed(slice);' +
          'media?.check();',
      },
    ],
    tests: [
      {
        file: 'test/pipeline/media-urls.test.ts',
        names: [
          'the check of media URLs runs chunk by chunk, not all at the end: 1 MB of short strings',
          'the check of media URLs runs chunk by chunk, not all at the end: 1 MB of short keys',
          'the check of media URLs runs chunk by chunk, not all at the end: 1 MB of parts',
          'the check of media URLs runs chunk by chunk, not all at the end: 1 MB of escapes',
          'the check of media URLs runs chunk by chunk, not all at the end: 1 MB of an image that escapes its slashes',
          'the check of media URLs runs chunk by chunk, not all at the end: 1 MB of an image of escapes',
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
          'the check of media URLs refuses an http image, without quoting it',
          'the check of media URLs refuses a file image, without quoting it',
          'the check of media URLs refuses an image without a scheme, without quoting it',
        ],
      },
    ],
  },
  {
    defence: 'the mark on a success: one that is not encrypted is shown',
    file: 'lib/http-rules/response-kind.ts',
    edits: [{ find: "if (status >= 400) return 'plain';", replace: "if (status >= 200) return 'plain';" }],
    tests: [
      {
        file: 'test/http-rules/response-kind.test.ts',
        names: [
          'the head of an upstream response is read as response_not_encrypted: a success that says it is plain',
        ],
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
    defence: 'the length of an iv: OpenSSL accepts any other',
    file: 'lib/crypto/node/aead.ts',
    edits: [
      {
        find: "if (iv.length !== IV_BYTES) throw new PrivatemodeError('internal', 'the iv is not 12 bytes');",
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/crypto/aead.test.ts',
        names: ['AES-256-GCM refuses keys and ivs of every other length in Wycheproof'],
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
          'the gateway, before it sends anything, refuses a request of a web page of another origin (Origin: https://evil.example): 403 origin_forbidden',
          'the gateway, before it sends anything, refuses a request of a web page of another origin (Sec-Fetch-Site: cross-site): 403 origin_forbidden',
        ],
      },
    ],
  },
  {
    defence: 'the size of a body that does not announce it: there is no limit',
    file: 'lib/gateway/receive-body.ts',
    edits: [{ find: 'if (bytes.fromClient > maxBodyBytes) throw', replace: 'if (Date.now() < 0) throw' }],
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
          'refusals before the end of the upload a body that is compressed, announced with Expect, gets 415 and no 100',
          'refusals before the end of the upload a compressed body is refused',
          'refusals before the end of the upload a body with Transfer-Encoding: gzip, chunked is refused',
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
          'the memory of uploads is refused to a body that has waited too long, and given to the bodies behind it',
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
        names: [
          'the memory of uploads has an eighth reserved for small bodies, which do not wait behind large ones',
        ],
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
        names: ['broken streams end over HTTP/1.0 with the error and a reset of the connection'],
      },
    ],
  },
  {
    defence: 'a response that is broken on a socket file: it is reset, for which Node throws',
    file: 'lib/gateway/own-response.ts',
    edits: [{ find: '|| !isTcp)', replace: '|| socket === null)' }],
    tests: [
      {
        file: 'test/gateway/own-response.test.ts',
        names: [
          'a connection that is broken on purpose is closed on a socket file, which has no reset: HTTP/1.0, {}',
        ],
      },
    ],
  },
  {
    defence: 'the digest of a body: pieces that come after it was taken change it',
    file: 'lib/gateway/accounts.ts',
    edits: [{ find: '    if (this.#isClosed) return;\n', replace: '' }],
    tests: [
      {
        file: 'test/gateway/receive-body.test.ts',
        names: [
          'a body that is taken in adds nothing to accounts that are closed, although more of it comes after its refusal',
        ],
      },
    ],
  },
  {
    defence: 'the hint about an unknown path: each of its slashes costs a look at all the rest',
    file: 'lib/api/match-endpoint.ts',
    edits: [{ find: 'asked.slice(-LONGEST_PATH)', replace: 'asked.slice(-LONGEST_PATH * 9_999)' }],
    tests: [
      {
        file: 'test/api/endpoints.test.ts',
        names: ['a path that does not exist gets its refusal after little work, however often it repeats /a'],
      },
    ],
  },
  {
    defence: 'the time to connect: a handshake behind an outbound proxy has that of the response',
    file: 'lib/network/upstream.ts',
    edits: [{ find: '!(socket as TLSSocket | null)?.authorized', replace: 'socket?.connecting !== false' }],
    tests: [
      {
        file: 'test/network/upstream.test.ts',
        names: [
          'an attempt through an outbound proxy fails by the time limit of the connection if the TLS handshake is not answered',
          'an attempt through an outbound proxy that is reset in the TLS handshake may be retried, because nothing of it has left',
        ],
      },
    ],
  },
  {
    defence:
      'the time to connect: a connection that was abandoned before its handshake has that of the response',
    file: 'lib/network/upstream.ts',
    edits: [
      {
        find: '(!(socket as TLSSocket | null)?.authorized)',
        replace: '(!created.reusedSocket && !(socket as TLSSocket | null)?.authorized)',
      },
    ],
    tests: [
      {
        file: 'test/network/upstream.test.ts',
        names: [
          'an attempt through an outbound proxy fails by the time limit of the connection if it gets one that a client abandoned before the TLS handshake',
        ],
      },
    ],
  },
  {
    defence: 'a connection that was never there: it is said that the service closed it',
    file: 'lib/network/upstream-failure.ts',
    edits: [{ find: 'known === undefined && !connected &&', replace: 'known === undefined && connected &&' }],
    tests: [
      {
        file: 'test/network/upstream.test.ts',
        names: [
          'an attempt that gets no connection fails as upstream_unreachable, names EPERM, and is not retried',
          'an attempt that gets no connection fails as upstream_unreachable if the service refuses the TLS handshake with an alert',
          'an attempt on a connection that breaks fails as upstream_reset even if the error code has no row',
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
          'a request target is refused if another parser may read it differently: "/unstructured/../v1/chat/completions"',
          'a request target is refused if another parser may read it differently: "/unstructured/.."',
          'a request target is refused if another parser may read it differently: "/unstructured/%2e%2e/v1/chat/completions"',
          'a request target is refused if another parser may read it differently: "/v1/models/.."',
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
          'forwarded endpoints POST /v1/messages?beta=true&api_key=k is sent to the service as /v1/messages?beta=true',
          'forwarded endpoints POST /v1/messages?beta=1;key=k is sent to the service as /v1/messages',
          'forwarded endpoints GET /v1/models?limit=2&key=k&after=m%2F1&after_id=a&before_id=b&order=desc is sent to the service as /v1/models?limit=2&after=m%2F1&after_id=a&before_id=b&order=desc',
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
          'a foreign page passes only if it sends neither Origin nor Sec-Fetch-Site, and sets a key or User-Agent',
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
        names: ['pipelined requests run one at a time on a connection, and are begun in their order'],
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
        names: ['pipelined requests end their connection if more than 4,096 of them wait'],
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
        names: ['pipelined requests end their connection if more than 4 MiB of them wait'],
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
          'pipelined requests are not begun if their connection ends right after the previous response',
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
        names: ['pipelined requests are parsed one read per turn of the event loop if a connection has many'],
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
          'pipelined requests wait with the body unread beyond a buffer, and have all of it once they are begun',
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
          'pipelined requests of eight connections are read per turn of the event loop as often as those of one',
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
        names: ['pipelined requests have the short pieces of their bodies joined while they wait'],
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
          'bodies in pieces of one byte raw bytes: takes at most three times its size in memory, and is read a little per turn of the event loop',
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
          'bodies in pieces of one byte share the reads of a turn: eight bodies together are read as often as one',
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
          'bodies in pieces of one byte are read a little per turn even if each read ends with a long piece',
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
          'pipelined requests wait with the body in short pieces unread beyond a buffer, and have all of it once they are begun',
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
        names: [
          'the place of a client is freed if the client reads nothing of a whole response, and the log says why',
        ],
      },
    ],
  },
  {
    defence: 'the progress of a client that reads slowly: a response that is written as one shows none',
    file: 'lib/gateway/own-response.ts',
    edits: [{ find: 'body.flatMap(piecesOf)', replace: 'body' }],
    tests: [
      {
        file: 'test/gateway/slow-readers.test.ts',
        names: [
          'the place of a client is kept while the client slowly reads a response that is translated as one piece',
        ],
      },
    ],
  },
  {
    defence: 'the longest prompt: one of more than a million tokens is hashed and sent',
    file: 'lib/pipeline/shard-key.ts',
    edits: [{ find: 'if (Math.floor(total / TOKEN_BYTES) > TOKEN_LIMIT) {', replace: 'if (total < 0) {' }],
    tests: [
      {
        file: 'test/pipeline/shard-key.test.ts',
        names: ['the shard key is refused for more than a million tokens, with 400 and context_too_large'],
      },
    ],
  },
];
