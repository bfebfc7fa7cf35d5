/** Faults in what opens and checks the responses of the service. */
import type { Mutation } from './mutation.ts';

const MATRIX = 'test/faults/matrix.test.ts';

/** The names of a row's streaming cells, as matrix.test.ts makes them. */
const streamed = (row: string, outcome: string): string[] =>
  ['openai', 'anthropic'].map((style) => `the fault matrix ${row} ${style} stream: ${outcome}`);

const ATTACKS = 'test/e2e/gateway-attacks.test.ts';

/** The rows of one kind of attack, as gateway-attacks.test.ts names them; each is refused. */
const attacks = (kind: string, ...rows: string[]): Mutation['tests'][number] => ({
  file: ATTACKS,
  names: rows.map((row) => `a hostile gateway ${kind} ${row}: refused`),
});

const HIDDEN = 'a: the next events under other names of an earlier one';
const COUNTS = 'e: how many choices, and how far';
const REFLECTED = 'g: messages of the request sent back';

const FORGED = '200 error event response_not_authentic, broken';
const UNFINISHED = '200 error event stream_unfinished, broken';

export const RESPONSES: readonly Mutation[] = [
  {
    defence: 'the sequence check: messages are accepted in any order',
    file: 'lib/envelope/message-cipher.ts',
    edits: [
      {
        find: 'return authentic(gcmDecrypt(key, slot.iv, messageAad, bytes.subarray(0, size), slot.tag));',
        replace:
          'let plaintext: Buffer | undefined;' +
          'for (let any = 0; any < 500 && !plaintext; any++)' +
          '  plaintext = gcmDecrypt(key, slot.iv, aadFor(any), bytes.subarray(0, size), slot.tag);' +
          'return authentic(plaintext);',
      },
      { find: '.size > SHORT_BYTES;', replace: '.size >= 0;' },
    ],
    tests: [
      {
        file: MATRIX,
        names: [
          ...streamed('replay: an event comes twice', FORGED),
          ...streamed('reorder: two events are swapped', FORGED),
          ...streamed('drop: an event is left out', FORGED),
        ],
      },
    ],
  },
  {
    defence: 'the tag of a short message: what was changed on the way is opened',
    file: 'lib/crypto/node/short-messages.ts',
    edits: [{ find: 'return difference === 0;', replace: 'return difference >= 0;' }],
    tests: [{ file: MATRIX, names: streamed('flip_tag: one bit of a tag is flipped', FORGED) }],
  },
  {
    defence: 'the terminal-event check: a stream may end anywhere',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [
      {
        find: 'if (this.failure === undefined && !this.#ended && !this.modelError) {',
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: MATRIX,
        names: [
          ...streamed('missing_terminal: the terminal event is missing', UNFINISHED),
          ...streamed('truncate: the stream ends cleanly in the middle', UNFINISHED),
        ],
      },
    ],
  },
  {
    defence: 'the authenticated finish: a terminal event alone is believed',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [
      { find: 'if (!this.#checks.order.complete && !this.modelError) {', replace: 'if (Date.now() < 0) {' },
    ],
    tests: [
      {
        file: MATRIX,
        names: streamed(
          'forged_terminal: the stream ends in the middle, with a forged terminal event',
          UNFINISHED,
        ),
      },
    ],
  },
  {
    defence: 'the direction: messages of the request are opened as those of the response',
    file: 'lib/envelope/message-cipher.ts',
    edits: [{ find: 'if (isOwnIv(slot.iv)) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      attacks(
        REFLECTED,
        ...['chat', 'completions', 'messages', 'embeddings', 'transcription'].map(
          (endpoint) => `${endpoint}-whole-look: all that a response needs`,
        ),
        ...['chat', 'completions', 'messages', 'transcription'].map(
          (endpoint) => `${endpoint}-stream-look: all that a stream needs`,
        ),
        'unstructured-whole: the document',
      ),
    ],
  },
  {
    defence: 'hidden events: what looks like content passes under any name',
    file: 'lib/pipeline/response-grammar.ts',
    edits: [{ find: 'if (looksLikeContent(value, object)) return false;', replace: '' }],
    tests: [
      attacks(
        HIDDEN,
        ...['chat-stream', 'completions-stream', 'transcription-stream'].map(
          (row) => `${row}: behind its own`,
        ),
        'chat-stream: its own before those of the next',
      ),
    ],
  },
  {
    defence: 'the members of messages: unknown ones pass',
    file: 'lib/pipeline/response-grammar.ts',
    edits: [
      { find: '(others !== undefined && PLAUSIBLE_NAME', replace: '(PLAUSIBLE_NAME' },
      { find: "return others === 'harmless' ||", replace: "return others !== 'empty' ||" },
    ],
    tests: [attacks(HIDDEN, 'messages-stream: the delta behind it')],
  },
  {
    defence: 'the names of events: one without a name passes',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [{ find: 'if (named && event.event !== name)', replace: 'if (Date.now() < 0)' }],
    tests: [
      attacks(
        'b: event lines',
        'messages-stream: none at delta 8',
        'messages-stream: none at any delta',
        'messages-stream: none at message_start',
        'messages-stream: a delta as ping',
      ),
    ],
  },
  {
    defence: 'the order of a message: its blocks come as they like',
    file: 'lib/pipeline/sse/event-checks.ts',
    edits: [{ find: 'if (!allowed) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-events.test.ts',
        names: [
          'an empty beginning',
          'two starts',
          'block 0 once more',
          'a delta of another block',
          'a finish in a block',
          'a block after the finish',
        ].map((row) => `an event stream of messages has its events in their order ${row}: refused`),
      },
    ],
  },
  {
    defence: 'what is constant: two runs of one request are spliced',
    file: 'lib/pipeline/sse/event-checks.ts',
    edits: [{ find: 'if (text.compare(first) !== 0) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      attacks(
        'f: two runs of one request',
        'chat-stream: another created',
        'completions-stream: another model',
        'transcription-stream: another id',
      ),
    ],
  },
  {
    defence: 'the members of whole responses: required ones may be missing',
    file: 'lib/pipeline/decrypt-body.ts',
    edits: [
      { find: 'if (!hasNames(row, [...opened.keys()], plain) || !isOfType)', replace: 'if (!isOfType)' },
    ],
    tests: [
      attacks(
        'd: members of whole answers',
        'transcription-verbose: words gone',
        'messages-whole: stop_reason gone',
        'messages-whole: stop_reason and role gone',
        'completions-whole: model as modem',
        'embeddings-whole: object gone',
      ),
    ],
  },
  {
    defence: 'the number of choices of whole responses: any will do',
    file: 'lib/pipeline/decrypt-body.ts',
    edits: [
      {
        find: "if (name === 'choices' && required !== undefined && (value as unknown[]).length !== choices)",
        replace: 'if (Date.now() < 0)',
      },
    ],
    tests: [
      attacks(
        COUNTS,
        'chat-whole-2: fewer choices than asked for',
        'completions-whole: more choices than asked for',
        'completions-whole-batch: fewer choices than asked for',
      ),
    ],
  },
  {
    defence: 'the choices of streams: more or fewer than were asked for',
    file: 'lib/pipeline/sse/event-checks.ts',
    edits: [
      { find: 'index < wanted', replace: 'index < 99' },
      { find: 'finished === wanted ||', replace: 'finished > 0 ||' },
    ],
    tests: [
      attacks(
        COUNTS,
        'chat-stream: more choices than asked for',
        'completions-stream-batch: cut after the first prompt',
        'chat-stream-2: one of two choices never finishes',
      ),
    ],
  },
  {
    defence: 'the closing chunk of transcriptions: any chunk is the last',
    file: 'lib/pipeline/sse/event-checks.ts',
    edits: [{ find: 'isAudio ? closed :', replace: 'isAudio ? began :' }],
    tests: [attacks(COUNTS, 'transcription-stream: cut after a stretch of audio')],
  },
  {
    defence: 'dates and ids of responses that nothing authenticates: those of a stranger pass',
    file: 'lib/exchange/headers.ts',
    edits: [{ find: '(authenticated && OF_THE_ANSWER.has(name))', replace: 'OF_THE_ANSWER.has(name)' }],
    tests: [
      {
        file: 'test/fuzz/gateway-attacks.test.ts',
        names: [
          'headers that a gateway writes are hints; ids, the date and rules for caches only beside a body that authenticates',
        ],
      },
    ],
  },
  {
    defence: 'sealed errors: any member may stand in clear',
    file: 'lib/pipeline/decrypt-body.ts',
    edits: [
      {
        find: 'if (asked === undefined) checkError(body, plain);',
        replace: 'if (asked === undefined) void 0;',
      },
    ],
    tests: [
      {
        file: 'test/e2e/gateway-attacks.test.ts',
        names: [
          'a hostile gateway d: members of whole answers chat-error: a plain usage that is text: refused',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: calls of a response that was cut by length are done, and agents run them',
    file: 'lib/responses/translation.ts',
    edits: [{ find: "of status === 'completed' ? this", replace: 'of status.length > 0 ? this' }],
    tests: [
      {
        file: 'test/responses/stream.test.ts',
        names: ['a whole chat completion has no call unless it is complete'],
      },
    ],
  },
  {
    defence: 'the Responses API: after an error of the service the connection ends as after a whole response',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: '(translator === undefined || !decrypter.modelError)', replace: 'Date.now() > 0' }],
    tests: [
      {
        file: 'test/gateway/responses-api.test.ts',
        names: [
          'POST /v1/responses tells no client to run a call of a stream with error_event:2, and breaks the connection',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a call whose arguments were cut is done, and agents run it',
    file: 'lib/responses/translation.ts',
    edits: [{ find: 'if (isCut(call.args))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses/stream.test.ts',
        names: [
          'a Responses stream fails at arguments that were cut, although the service says that they are whole: {"a":1,',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a call changes its name after its first piece has been told',
    file: 'lib/responses/translation.ts',
    edits: [{ find: 'if (isText(name) && name !== call.item.chatName)', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses/stream.test.ts',
        names: ['a Responses stream fails at a call that changes its name'],
      },
    ],
  },
  {
    defence: 'the Responses API: a request is translated in one go while everybody waits',
    file: 'lib/gateway/receive-body.ts',
    edits: [
      { find: 'if (performance.now() - since < TURN_MS) return', replace: 'if (Date.now() > 0) return' },
    ],
    tests: [
      {
        file: 'test/gateway/receive-body.test.ts',
        names: ['a body that is translated lets others have their turn between its pieces'],
      },
    ],
  },
  {
    defence:
      'the Responses API: tools whose names have one digest are numbered from the first number on, each time',
    file: 'lib/responses/tools.ts',
    edits: [{ find: 'this.#numbers.get(stem) ?? 2', replace: '2' }],
    tests: [
      {
        file: 'test/responses/hostile-requests.test.ts',
        names: [
          'a Responses request whose lists are long costs steps in proportion to its bytes: tools, one digest',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a request names any number of tools',
    file: 'lib/responses/tools.ts',
    edits: [
      {
        find: 'if (this.#names.size + this.hosted.size < MOST_TOOLS) return;',
        replace: 'if (Date.now() > 0) return;',
      },
    ],
    tests: [
      {
        file: 'test/responses/hostile-requests.test.ts',
        names: [
          'a Responses request whose lists are long may name 1,024 different tools, and is refused with more: earlier calls',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: an item has any number of values',
    file: 'lib/responses/value-reader.ts',
    edits: [{ find: 'if (values > MOST_VALUES) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/responses/request.test.ts',
        names: [
          'a Responses request as a chat completion takes an item of 100,000 numbers, and refuses more',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: texts are parsed and written whole while everybody waits',
    file: 'lib/responses/value-reader.ts',
    edits: [{ find: 'ended(length > SHORT ? new Span', replace: 'ended(Date.now() < 0 ? new Span' }],
    tests: [
      {
        file: 'test/responses/request.test.ts',
        names: [
          'a Responses request as a chat completion is never parsed or written as a whole: not its texts, nor what shares a message',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a number of the request becomes another one',
    file: 'lib/responses/request-members.ts',
    edits: [{ find: 'if (!isKept(text))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses/request.test.ts',
        names: [
          'a Responses request as a chat completion refuses the number 18446744073709551615 of a member',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: all items of a request are read in one turn',
    file: 'lib/responses/request.ts',
    edits: [{ find: 'const AT_A_TIME = 64 * 1024;', replace: 'const AT_A_TIME = 64 * 1024 * 1024;' }],
    tests: [
      {
        file: 'test/responses/hostile-requests.test.ts',
        names: [
          'a Responses request whose lists are long holds others no longer where more items come: calls in one message',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: what is made of a request is reserved by nobody',
    file: 'lib/responses/chat-output.ts',
    edits: [{ find: 'this.#hold(Buffer.byteLength(this.#text));', replace: '' }],
    tests: [
      {
        file: 'test/responses/request.test.ts',
        names: [
          'a Responses request as a chat completion reserves what is made before it is, and nothing for what is passed on',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: what a response repeats takes memory that nobody reserved',
    file: 'lib/gateway/open-response.ts',
    edits: [{ find: 'await reservation?.reserve(bytes, exchange.life.signal);', replace: '' }],
    tests: [
      {
        file: 'test/gateway/response-memory.test.ts',
        names: [
          'memory for what a translated response repeats of its request is reserved before the request is sent, and free when the client has left',
        ],
      },
    ],
  },
  {
    defence: 'a body that was refused keeps its memory although its reservation is gone',
    file: 'lib/gateway/receive-body.ts',
    edits: [
      { find: '    settle();\n    release();\n', replace: '    settle();\n    reservation.release();\n' },
    ],
    tests: [
      {
        file: 'test/gateway/receive-body.test.ts',
        names: [
          'a body that is taken in is freed when it is refused, while it arrives or when it is complete',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: metadata of the client leaves',
    file: 'lib/responses/request-members.ts',
    edits: [
      { find: "...here(\n    'object',\n    'text',", replace: "...same(\n    'object',\n    'text'," },
    ],
    tests: [
      {
        file: 'test/responses/request.test.ts',
        names: [
          'a Responses request as a chat completion lets nothing of the client leave that is not translated',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API of the library: a stream that fails has no response.failed',
    file: 'lib/client/respond.ts',
    edits: [{ find: 'translator?.fail(error) ?? ', replace: '' }],
    tests: [
      {
        file: 'test/client/responses-api.test.ts',
        names: [
          'the Responses API of the library ends a stream with the fault flip_tag:2 by response.failed and an error, and completes no tool call',
        ],
      },
    ],
  },
];
