/** Faults in what leaves in clear, and what is taken for an answer. */
import type { Mutation } from './mutation.ts';

export const PIPELINE: readonly Mutation[] = [
  {
    defence: 'the header allow-list: whatever the client sends goes on',
    file: 'lib/http-rules/headers.ts',
    edits: [
      { find: 'listed(head.headers, TO_REMOTE)', replace: 'listed(head.headers, Object.keys(head.headers))' },
    ],
    tests: [
      {
        file: 'test/http-rules/headers.test.ts',
        names: ['request headers towards the remote have nothing else of the application'],
      },
    ],
  },
  {
    defence: 'the mark on a success: one that is not encrypted is shown',
    file: 'lib/http-rules/response-kind.ts',
    edits: [{ find: '(isMarkedPlain && status >= 400)', replace: 'isMarkedPlain' }],
    tests: [
      {
        file: 'test/http-rules/response-kind.test.ts',
        names: ['the head of an upstream response decides how the response is read, or that it is refused'],
      },
    ],
  },
  {
    defence: 'dates and ids of responses that nothing authenticates: those of a stranger pass',
    file: 'lib/http-rules/headers.ts',
    edits: [{ find: '(authenticated ? IF_AUTHENTICATED : [])', replace: 'IF_AUTHENTICATED' }],
    tests: [
      {
        file: 'test/gateway/errors.test.ts',
        names: [
          'an error of the service is shown and marked if it declares itself plain, with its Retry-After but without its ids and dates',
        ],
      },
    ],
  },
  {
    defence: 'the key of a request: one for another vendor leaves beside an empty Authorization',
    file: 'lib/pipeline/rewrite-auth.ts',
    edits: [{ find: 'authorization ?? bearer(', replace: 'authorization || bearer(' }],
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
    file: 'lib/pipeline/plain-members.ts',
    edits: [{ find: 'if (value !== undefined && !holds(value)) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/pipeline/request-body.test.ts',
        names: [
          'the value of a plain member of a JSON request body is refused by an error that names stream_options only if its rule does not allow it',
        ],
      },
    ],
  },
  {
    defence: 'the model name: blanks around it, which the header of the same name loses',
    file: 'lib/pipeline/plain-members.ts',
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
    file: 'lib/pipeline/plain-members.ts',
    edits: [{ find: 'if (holds === undefined) throw', replace: 'if (Date.now() < 0) throw' }],
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
    file: 'lib/pipeline/request-body.ts',
    edits: [{ find: 'plain.has(name) });', replace: "plain.has(name) || name === 'messages' });" }],
    tests: [
      {
        file: 'test/pipeline/encrypt-body.test.ts',
        names: [
          'a JSON body of the vectors is sealed as expected: chat-basic',
          'a JSON body of the vectors is sealed as expected: chat-escaped-plain-key',
        ],
      },
    ],
  },
  {
    defence: 'the URLs of images: the service may refuse one, and quote it in clear',
    file: 'lib/pipeline/media-urls.ts',
    edits: [
      { find: "if (typeof url === 'string' && !isAcceptedImage(url))", replace: 'if (Date.now() < 0)' },
    ],
    tests: [
      {
        file: 'test/pipeline/media-urls.test.ts',
        names: [
          'the check of media URLs refuses an http image, without quoting it',
          'the check of media URLs refuses a file image, without quoting it',
        ],
      },
    ],
  },
  {
    defence: 'the terminal-event check: a stream may end anywhere',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [
      {
        find: 'if (!this.finished && !this.modelError) {',
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: 'test/pipeline/decrypt-events.test.ts',
        names: [
          'the clean end of an event stream is refused without any event',
          'the clean end of an event stream is refused without the terminal event',
        ],
      },
    ],
  },
  {
    defence: 'the authenticated finish: a terminal event alone is believed',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [{ find: 'if (isLast && !this.#complete &&', replace: 'if (Date.now() < 0 &&' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-events.test.ts',
        names: [
          'an event stream of the vectors is opened, except for its end, which a gateway could have forged: id-line',
          'an event stream of the vectors is opened, except for its end, which a gateway could have forged: transcription',
        ],
      },
    ],
  },
  {
    defence: 'hidden events: what looks like content passes under any name',
    file: 'lib/pipeline/response-grammar.ts',
    edits: [{ find: ' || looksLikeContent(value, object)', replace: '' }],
    tests: [
      {
        file: 'test/pipeline/response-grammar.test.ts',
        names: [
          'the members of a chunk of chat are not choices under an unknown name',
          'the members of a chunk of chat are not a bare delta in a list',
        ],
      },
    ],
  },
  {
    defence: 'the members of messages: unknown ones pass',
    file: 'lib/pipeline/response-grammar.ts',
    edits: [
      { find: '(row.others !== undefined && !taken', replace: '(!taken' },
      { find: "return others === 'harmless' ||", replace: "return others !== 'empty' ||" },
    ],
    tests: [
      {
        file: 'test/pipeline/decrypt-events.test.ts',
        names: [
          'an event stream of the messages API is refused with a member that the API does not have, except context_management of the last delta',
        ],
      },
    ],
  },
  {
    defence: 'the names of events: one without a name passes',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [{ find: 'if (this.#named && name !== type)', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/e2e/gateway-attacks.test.ts',
        names: [
          'a hostile gateway that changes event lines: no event line at delta 8 (exchange messages-stream): refused',
          'a hostile gateway that changes event lines: a delta as ping (exchange messages-stream): refused',
        ],
      },
    ],
  },
  {
    defence: 'the order of a message: its blocks come as they like',
    file: 'lib/pipeline/event-order.ts',
    edits: [{ find: 'if (!allowed) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/pipeline/event-order.test.ts',
        names: [
          'no start',
          'two starts',
          'block 0 once more',
          'a delta of another block',
          'a finish in an open block',
          'a block after the finish',
        ].map((row) => `a stream of blocks is refused with ${row}`),
      },
    ],
  },
  {
    defence: 'what is constant: two runs of one request are spliced',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [{ find: 'if (first !== undefined) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-events.test.ts',
        names: [
          'the members of the events of a stream chat: created must be present, and the same in every event',
          'the members of the events of a stream transcriptions: id must be present, and the same in every event',
        ],
      },
    ],
  },
  {
    defence: 'the members of whole responses: required ones may be missing',
    file: 'lib/pipeline/decrypt-body.ts',
    edits: [{ find: '|| !hasNames(row, layout, plain)', replace: '|| !!hasNames(row, layout, plain)' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-body.test.ts',
        names: [
          'the grammar of whole responses refuses chat without created, or with created false',
          'the grammar of whole responses refuses messages without content, or with content false',
        ],
      },
    ],
  },
  {
    defence: 'the elements of documents: any object passes for one, also an error',
    file: 'lib/pipeline/response-grammar.ts',
    edits: [
      { find: '[type, element_id, text].every(isText)', replace: '[type, element_id, text].length > 0' },
    ],
    tests: [
      {
        file: 'test/pipeline/decrypt-body.test.ts',
        names: [
          'the grammar of whole responses refuses the details of an error as the elements of a file',
          'the grammar of whole responses refuses the detail of an error as an element',
          'the grammar of whole responses refuses the object of an error as an element',
        ],
      },
    ],
  },
  {
    defence: 'the number of choices of whole responses: any will do',
    file: 'lib/pipeline/decrypt-body.ts',
    edits: [{ find: 'value.length === choices', replace: 'value.length > -1' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-body.test.ts',
        names: [
          'the grammar of whole responses refuses fewer choices than asked for',
          'the grammar of whole responses refuses more choices than asked for',
        ],
      },
    ],
  },
  {
    defence: 'the choices of streams: more or fewer than were asked for',
    file: 'lib/pipeline/event-order.ts',
    edits: [
      { find: 'index < wanted', replace: 'index < 99' },
      { find: 'finished.size === wanted ||', replace: 'finished.size > 0 ||' },
    ],
    tests: [
      {
        file: 'test/pipeline/event-order.test.ts',
        names: [
          'a stream of chunks of 2 is unfinished with the finish of one of two',
          'a stream of chunks of 2 is unfinished with a choice that never began',
          'a stream of chunks of 2 is refused with one more choice at the end',
        ],
      },
    ],
  },
  {
    defence: 'the closing chunk of transcriptions: any chunk is the last',
    file: 'lib/pipeline/event-order.ts',
    edits: [{ find: 'isAudio ? closed :', replace: 'isAudio ? began :' }],
    tests: [
      {
        file: 'test/pipeline/event-order.test.ts',
        names: [
          'a stream of chunks comes to its end with the closing chunk in a transcription, whatever number of stretches has finished',
        ],
      },
    ],
  },
  {
    defence: 'sealed errors: any member may stand in clear',
    file: 'lib/pipeline/decrypt-body.ts',
    edits: [
      {
        find: 'if (!plain.every(({ name }) => isKnown(name))) {',
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: 'test/pipeline/decrypt-body.test.ts',
        names: [
          'the grammar of whole responses refuses an error of messages: {"error":{"message":"no"},"type":"message"}',
          'the grammar of whole responses refuses an error of transcription: {"error":{"message":"no"},"duration":"forged"}',
        ],
      },
    ],
  },
  {
    defence: 'plain members: any value may stand in clear',
    file: 'lib/pipeline/sealed-json.ts',
    edits: [{ find: 'if (!plain[name]!.includes(', replace: 'if ([].includes(' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-body.test.ts',
        names: [
          'the grammar of whole responses refuses an error of chat: {"error":{"message":"no"},"id":1}',
          'the grammar of whole responses refuses an error of chat: {"error":{"message":"no"},"usage":"forged"}',
        ],
      },
    ],
  },
  {
    defence: 'plain members: they may hold characters that some clients take for line ends',
    file: 'lib/pipeline/sealed-json.ts',
    edits: [{ find: '|| !(isText || PRINTABLE.test(written))', replace: '' }],
    tests: [
      {
        file: 'test/pipeline/line-ends.test.ts',
        names: [
          'line separators in text that nothing authenticates forge no line of data in the plain id: "\u0085"',
        ],
      },
    ],
  },
  {
    defence: 'the budget of tokens: a client that leaves a stream at its finish spends nothing',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [
      {
        find: 'return tokenUsage(this.#usage',
        replace: 'return !this.finished ? undefined : tokenUsage(this.#usage',
      },
    ],
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
    defence: 'the segments of a path: it may lead elsewhere than it seems to',
    file: 'lib/api/match-endpoint.ts',
    edits: [
      {
        find: ' || segments.some((each) => /^\\.\\.?$/.test(each))',
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/api/endpoints.test.ts',
        names: ['a request target is refused, and not quoted, if another parser may read it differently'],
      },
    ],
  },
  {
    defence: 'the parameters of a query: all of them leave, in clear',
    file: 'lib/api/match-endpoint.ts',
    edits: [
      {
        find: "split('&').filter(isKept)",
        replace: "split('&').filter((each) => isKept(each) || each !== '')",
      },
    ],
    tests: [
      {
        file: 'test/api/endpoints.test.ts',
        names: ['forwarded endpoints get the parameters that they list, each as it came, and no other'],
      },
    ],
  },
  {
    defence: 'the sequence check: messages are accepted in any order',
    file: 'lib/envelope/message-cipher.ts',
    edits: [
      {
        find: 'this.#key.open(messages.map((message) => this.#receive(message)));',
        replace:
          'messages.map((message) => this.#receive(message)).flatMap((each) => Array.from({ length: 500 },' +
          ' (_, any) => this.#key.open([{ ...each, aad: this.#aadFor(any) }])).find(Array.isArray));',
      },
    ],
    tests: [
      {
        file: 'test/envelope/message-cipher.test.ts',
        names: [
          'a request cipher opens messages together only in the order of their numbers',
          'a request cipher refuses a replayed message',
          'a request cipher refuses a message after a skipped one',
        ],
      },
    ],
  },
  {
    defence: 'the direction: messages of the request are opened as those of the response',
    file: 'lib/envelope/message-cipher.ts',
    edits: [{ find: 'if (sent !== undefined && sent === iv', replace: 'if (Date.now() < 0 && sent === iv' }],
    tests: [
      {
        file: 'test/envelope/message-cipher.test.ts',
        names: [
          'the messages of a request are refused when they come back in the response, hex in upper case or not: 20 bytes',
          'the messages of a request are refused when they come back in the response, hex in upper case or not: 5000 bytes',
        ],
      },
    ],
  },
  {
    defence: 'the ivs: the same random bytes are given out again',
    file: 'lib/crypto/random.ts',
    edits: [{ find: 'pool = pool.subarray(size);', replace: '' }],
    tests: [
      {
        file: 'test/crypto/random.test.ts',
        names: ['random bytes are not given out twice, although they are drawn many at once'],
      },
    ],
  },
];
