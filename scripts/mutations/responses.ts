/** Faults in what opens and checks the responses of the service. */
import type { Mutation } from './mutation.ts';

const MATRIX = 'test/faults/matrix.test.ts';

/** The names of a row's streaming cells, as matrix.test.ts makes them. */
const streamed = (row: string, outcome: string): string[] =>
  ['openai', 'anthropic'].map((style) => `the fault matrix ${row} ${style} stream: ${outcome}`);

const ATTACKS = 'test/e2e/gateway-attacks.test.ts';

/** The rows of one kind of attack, `EXCHANGE: ATTACK` as in gateway-attacks.test.ts; each is refused. */
const attacks = (kind: string, ...rows: string[]): Mutation['tests'][number] => ({
  file: ATTACKS,
  names: rows.map((row) => {
    const [exchange, attack] = row.split(/: (.*)/) as [string, string];
    return `a hostile gateway ${kind} ${attack} (exchange ${exchange}): refused`;
  }),
});

const HIDDEN = 'that hides messages of later events in an earlier one under other names:';
const COUNTS = 'that sends fewer or more choices than asked for, or cuts a stream short:';
const REFLECTED = 'that sends messages of the request back as the response:';

const FORGED = '200 error event response_not_authentic, broken';
const UNFINISHED = '200 error event stream_unfinished, broken';

const OVERFLOW = 'test/pipeline/context-overflow.test.ts';

const OWN_KEY = 'test/gateway/own-key.test.ts';

const LIBRARY = 'test/client-library/one-exchange.test.ts';

export const RESPONSES: readonly Mutation[] = [
  {
    defence: 'a 401 without the mark of a plain error: the key of the operator is not seen to be refused',
    file: 'lib/gateway/respond.ts',
    edits: [
      { find: 'const refused = refusalIn(exchange, upstream, text)', replace: 'const refused = undefined' },
    ],
    tests: [
      {
        file: OWN_KEY,
        names: [
          "an operator's key that the service refuses is recognized by a 401 without the mark of a plain error, in JSON",
        ],
      },
    ],
  },
  {
    defence: 'a proxy without a key: a client whose key is `undefined` passes for the operator',
    file: 'lib/gateway/send-attempt.ts',
    edits: [{ find: 'configuredKey !== undefined && ', replace: '' }],
    tests: [
      {
        file: OWN_KEY,
        names: [
          "an operator's key that the service refuses is not mistaken for a client's own key `undefined` if no key is configured",
        ],
      },
    ],
  },
  {
    defence: 'an error that was encrypted and changed on the way: it counts as one of a gateway',
    file: 'lib/envelope/message-cipher.ts',
    edits: [{ find: '    met = true;\n', replace: '' }],
    tests: [
      {
        file: OWN_KEY,
        names: [
          "an operator's key that the service refuses is not recognized by a 401 with an encrypted error that was changed on the way",
        ],
      },
    ],
  },
  {
    defence: 'an error of a gateway without the mark of a plain error: it counts as tampering',
    file: 'lib/gateway/accounts.ts',
    edits: [{ find: ' || error instanceof ForeignError', replace: '' }],
    tests: [
      {
        file: 'test/gateway/errors.test.ts',
        names: [
          'an error of the service says what to do by its status 429, and not that it was tampered with, if it is neither sealed nor declared plain',
        ],
      },
    ],
  },
  {
    defence: 'a service that wants a newer client: a version that was cut off is quoted',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: ' || decrypter.failure === undefined', replace: '' }],
    tests: [
      {
        file: OWN_KEY,
        names: [
          'a service that wants a newer client is not recognized in an error without the mark of a plain one that breaks off',
        ],
      },
    ],
  },
  {
    defence: 'an encrypted error that breaks off: it says that nothing authenticates it (client library)',
    file: 'lib/client-library/respond.ts',
    edits: [
      { find: 'const { failure } = decrypter;', replace: 'const failure = thrown as PrivatemodeError;' },
    ],
    tests: [
      {
        file: LIBRARY,
        names: [
          'a request through the client library fails with stream_idle_timeout if an error that is not marked as plain pauses for longer',
        ],
      },
    ],
  },
  {
    defence: 'an error of a gateway that calls itself a stream: it counts as a tampered stream',
    file: 'lib/http-rules/response-kind.ts',
    edits: [
      { find: "if (status >= 400) return 'enc", replace: "if (status >= 400 && !streaming) return 'enc" },
    ],
    tests: [
      {
        file: 'test/gateway/errors.test.ts',
        names: [
          'an error of the service keeps its status and its Retry-After, but not its text, if it is an event stream that is not sealed',
        ],
      },
      {
        file: OWN_KEY,
        names: [
          "an operator's key that the service refuses is recognized by a 401 without the mark of a plain error, as an event stream",
        ],
      },
      {
        file: LIBRARY,
        names: [
          'a request through the client library keeps the status and the Retry-After of an error that is an event stream in clear, but not its text',
        ],
      },
    ],
  },
  {
    defence: 'a compressed error: it counts as tampering, and clients do not wait as long as it says',
    file: 'lib/http-rules/response-kind.ts',
    edits: [{ find: 'status < 400 ? refusal : new ForeignError(refusal, status)', replace: 'refusal' }],
    tests: [
      {
        file: 'test/gateway/errors.test.ts',
        names: [
          'an error of the service keeps its status and its Retry-After, but not its text, if it is compressed',
        ],
      },
      {
        file: LIBRARY,
        names: [
          'a request through the client library keeps the status and the Retry-After of an error that is compressed, but not its text',
        ],
      },
    ],
  },
  {
    defence:
      'a client that leaves at the beginning of a plain error: the service is blamed, and so is the key',
    file: 'lib/gateway/respond.ts',
    edits: [
      {
        find: 'if (res.destroyed) throw new ClientGone();\n    const refused',
        replace: 'const refused',
      },
    ],
    tests: [
      {
        file: 'test/gateway/client-aborts.test.ts',
        names: [
          'client aborts the gateway drops the exchange, also upstream, of a client that closes at the beginning of a plain error, and logs the phase',
        ],
      },
      {
        file: OWN_KEY,
        names: [
          "an operator's key that the service refuses is not recognized by a 401 whose client left before all of it had come",
        ],
      },
    ],
  },
  {
    defence: 'a client that leaves during a long plain error: the service is blamed',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: 'res.headersSent && !res.destroyed && note', replace: 'res.headersSent && note' }],
    tests: [
      {
        file: 'test/gateway/client-aborts.test.ts',
        names: [
          'client aborts the gateway drops the exchange, also upstream, of a client that closes during a long plain error, and logs the phase',
        ],
      },
    ],
  },
  {
    defence: 'a full context window in words that agents act on: the sentence of the model server stays',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: 'const overflow = isError &&', replace: 'const overflow = !isError &&' }],
    tests: [
      {
        file: OVERFLOW,
        names: [
          'a full context window through the gateway gives a 400 with the sentence of Anthropic in /v1/messages, and with the error code of OpenAI in /v1/chat/completions and /v1/responses',
        ],
      },
    ],
  },
  {
    defence: 'a full context window in the words for images: agents know only what is said of other prompts',
    file: 'lib/pipeline/context-overflow.ts',
    edits: [{ find: '|maximum model length of ', replace: '' }],
    tests: [
      {
        file: OVERFLOW,
        names: [
          'an error about a full context window says first that the prompt is too long in the Anthropic style if it names the length of the decoder prompt, as with images',
          'an error about a full context window gets the code of OpenAI and keeps its words in the OpenAI styles if it names the length of the decoder prompt, as with images',
        ],
      },
    ],
  },
  {
    defence: 'a full context window in an event of a stream: the sentence of the model server stays',
    file: 'lib/pipeline/decrypt-events.ts',
    edits: [{ find: 'this.#reword(kind);', replace: '' }],
    tests: [
      {
        file: 'test/pipeline/decrypt-events.test.ts',
        names: [
          'errors inside an event stream say in words that agents act on that a prompt with images does not fit',
        ],
      },
    ],
  },
  {
    defence: 'a prompt of too many characters for any tokens: the agent uploads it again with less output',
    file: 'lib/pipeline/context-overflow.ts',
    edits: [{ find: ' characters \\(more than 0 ', replace: '' }],
    tests: [
      {
        file: OVERFLOW,
        names: [
          'an error about a full context window says first that the prompt is too long in the Anthropic style if it names the characters of a prompt, which are too many for any tokens',
        ],
      },
    ],
  },
  {
    defence:
      'the room for output that is worth another request: the agent is told to ask for what it never asks for',
    file: 'lib/pipeline/context-overflow.ts',
    edits: [{ find: 'window - prompt < LEAST_ROOM || ', replace: '' }],
    tests: [
      {
        file: OVERFLOW,
        names: [
          'an error about a full context window says first that the prompt is too long in the Anthropic style if it names the least size of the prompt, and half of the output is too little',
        ],
      },
    ],
  },
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
    defence: 'the time of a slow reader: it counts as silence of the service while less than 64 KiB waits',
    file: 'lib/pipeline/decrypt-stream.ts',
    edits: [
      { find: 'const left = this.writableLength > 0 ?', replace: 'const left = this.writableNeedDrain ?' },
    ],
    tests: [
      {
        file: 'test/pipeline/decrypt-stream.test.ts',
        names: [
          'the time that a slow reader took does not take the tail of a response that the remote has completed',
        ],
      },
    ],
  },
  {
    defence: 'the end of the time of a slow reader: the service has no whole interval after it',
    file: 'lib/pipeline/decrypt-stream.ts',
    edits: [
      { find: 'if (this.writableLength > 0) this.#heardAt', replace: 'if (Date.now() < 0) this.#heardAt' },
    ],
    tests: [
      {
        file: 'test/pipeline/decrypt-stream.test.ts',
        names: [
          'the time that a slow reader took is not counted as silence of the remote if what waits does not pause it: the remote has an interval of its own after that',
        ],
      },
    ],
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
        'unstructured-whole-look: the document',
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
          (row) => `${row}: under names behind its own`,
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
        'that changes event lines:',
        'messages-stream: no event line at delta 8',
        'messages-stream: no event line at any delta',
        'messages-stream: no event line at message_start',
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
          'no start',
          'two starts',
          'block 0 once more',
          'a delta of another block',
          'a finish in an open block',
          'a block after the finish',
        ].map(
          (row) =>
            `an event stream of the messages API judged by the order of its events is refused with ${row}`,
        ),
      },
    ],
  },
  {
    defence: 'what is constant: two runs of one request are spliced',
    file: 'lib/pipeline/sse/event-checks.ts',
    edits: [{ find: 'if (text.compare(first) !== 0) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      attacks(
        'that splices a response of two runs of one request:',
        'chat-stream: the rest from a run with another created',
        'completions-stream: the rest from a run with another model',
        'transcription-stream: the rest from a run with another id',
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
        'that changes members of whole responses:',
        'transcription-verbose: words gone',
        'messages-whole: stop_reason gone',
        'messages-whole: stop_reason and role gone',
        'completions-whole: model as modem',
        'embeddings-whole: object gone',
      ),
    ],
  },
  {
    defence: 'the elements of documents: any object passes for one, also an error',
    file: 'lib/pipeline/response-grammar.ts',
    edits: [
      {
        find: "isObject(value) && isText(value['type']) && isText(value['element_id'])",
        replace: 'isObject(value)',
      },
      { find: " && isText(value['text']);", replace: ';' },
    ],
    tests: [
      {
        file: 'test/fuzz/gateway-attacks.test.ts',
        names: [
          'responses that a gateway edits are opened as the honest answer, as its beginning and an error, or as an error',
        ],
      },
      {
        file: 'test/pipeline/decrypt-body.test.ts',
        names: [
          'the details of an error as the elements of a file',
          'the detail of an error as an element',
          'the object of an error as an element',
        ].map((row) => `the grammar of whole responses refuses ${row}`),
      },
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
    file: 'lib/http-rules/headers.ts',
    edits: [{ find: '(authenticated && IF_AUTHENTICATED.has(name))', replace: 'IF_AUTHENTICATED.has(name)' }],
    tests: [
      {
        file: 'test/fuzz/gateway-attacks.test.ts',
        names: [
          'only hints among the headers of a gateway pass; ids, date and cache rules also pass beside an authentic body',
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
          'a hostile gateway that changes members of whole responses: a plain usage that is text (exchange chat-error): refused',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: calls of a response that was cut by length are done, and agents run them',
    file: 'lib/responses-api/translate-chunks.ts',
    edits: [{ find: "of status === 'completed' ? this", replace: 'of status.length > 0 ? this' }],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: [
          'a whole chat completion becomes an incomplete Response without its calls if finish_reason is length',
        ],
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
          'POST /v1/responses completes no tool call of a stream with the fault error_event:2, and breaks the connection to the client',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a call whose arguments were cut is done, and agents run it',
    file: 'lib/responses-api/translate-chunks.ts',
    edits: [{ find: 'if (isCut(call.args))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: [
          'a Responses stream fails at truncated arguments although finish_reason says that the call is complete: {"a":1,',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: an error before the first event of a response is an event',
    file: 'lib/api/error-response.ts',
    edits: [{ find: " && context.format !== 'responses'", replace: '' }],
    tests: [
      {
        file: 'test/api/error-response.test.ts',
        names: [
          'an error response in the responses form has the content type application/json for a client that accepts text/event-stream',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a stream that fails tells a developer what only the operator can do',
    file: 'lib/gateway/respond.ts',
    edits: [{ find: 'translator?.fail(told)', replace: 'translator?.fail(failure)' }],
    tests: [
      {
        file: 'test/gateway/responses-api.test.ts',
        names: [
          'POST /v1/responses with --clients tells a developer about a stream that fails what a developer can do, and names no flag',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a call changes its name after its first piece has been told',
    file: 'lib/responses-api/translate-chunks.ts',
    edits: [{ find: 'if (isText(name) && name !== call.item.chatName)', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: ['a Responses stream ends in response.failed at a call that changes its name'],
      },
    ],
  },
  {
    defence: 'the Responses API: an imperfect custom call whose string was cut is done, and agents run it',
    file: 'lib/responses-api/custom-input.ts',
    edits: [
      {
        find: "if (this.#state === 'within' || (end && end[1] === undefined)) throw cutArguments();",
        replace: "if (this.#state === 'within') return this.#given;",
      },
    ],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: [
          'a Responses stream fails at truncated arguments of a custom call that are no JSON before: {"input":"a\\d',
          'a Responses stream fails at truncated arguments of a custom call that are no JSON before: {"input":"a\\d"',
        ],
      },
    ],
  },
  {
    defence:
      'the Responses API: an input whose quotes are not escaped ends at the first one, and agents run its beginning',
    file: 'lib/responses-api/custom-input.ts',
    edits: [{ find: '(\\}[^"]*)?$/;', replace: '([^]*)$/;' }],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: [
          'a Responses stream ends in response.failed if the rest of a custom call contradicts the input that was delivered: {"input":"rm "x" y"}',
          'a Responses stream ends in response.failed if the rest of a custom call contradicts the input that was delivered: {"input":"f({a:"}")"}',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: each piece of the arguments of a call reads all pieces before it again',
    file: 'lib/responses-api/translate-chunks.ts',
    edits: [
      {
        find: 'const rest = call.sent === 0 ? call.args : piece;',
        replace: 'const rest = piece && call.args.slice(call.sent);',
      },
    ],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: [
          'a Responses stream takes no more work for each piece of long arguments than for each piece of a long text',
        ],
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
        names: ['a body that is translated lets other work run between its pieces'],
      },
    ],
  },
  {
    defence:
      'the Responses API: tools whose names have one digest are numbered from the first number on, each time',
    file: 'lib/responses-api/tools.ts',
    edits: [{ find: 'this.#numbers.get(stem) ?? 2', replace: '2' }],
    tests: [
      {
        file: 'test/responses-api/hostile-requests.test.ts',
        names: [
          'a Responses request whose lists are long costs steps in proportion to its bytes for a list of tools whose names or texts share one digest',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a request names any number of tools',
    file: 'lib/responses-api/tools.ts',
    edits: [
      {
        find: 'if (this.#names.size + this.hosted.size < MOST_TOOLS) return;',
        replace: 'if (Date.now() > 0) return;',
      },
    ],
    tests: [
      {
        file: 'test/responses-api/hostile-requests.test.ts',
        names: [
          'a Responses request whose lists are long may name 1,024 different tools, and is refused with more: earlier calls',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: an item has any number of values',
    file: 'lib/responses-api/value-reader.ts',
    edits: [{ find: 'if (values > MOST_VALUES) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: ['the translator of Responses requests accepts an item of 100,000 numbers, and refuses more'],
      },
    ],
  },
  {
    defence: 'the Responses API: texts are parsed and written whole while everybody waits',
    file: 'lib/responses-api/value-reader.ts',
    edits: [{ find: 'ended(length > SHORT ? new Span', replace: 'ended(Date.now() < 0 ? new Span' }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the translator of Responses requests never parses or writes in one go a request, its long texts, or all calls of one message',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: a number of the request becomes another one',
    file: 'lib/responses-api/request-members.ts',
    edits: [{ find: 'if (!isKept(text))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the translator of Responses requests refuses the number 18446744073709551615 as the value of a member',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: arguments that are no JSON end a conversation for good',
    file: 'lib/responses-api/messages.ts',
    edits: [{ find: "args === '' || isObjectText(args)", replace: 'Date.now() > 0' }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the translator of Responses requests sends arguments of an earlier call that are no JSON object in one: "ls"',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: all items of a request are read in one turn',
    file: 'lib/responses-api/translate-request.ts',
    edits: [{ find: '].flatMap(piecesOf)', replace: ']' }],
    tests: [
      {
        file: 'test/responses-api/hostile-requests.test.ts',
        names: [
          'a Responses request whose lists are long blocks other requests no longer if it has more items: calls in one message',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: what is made of a request is reserved by nobody',
    file: 'lib/responses-api/request-writer.ts',
    edits: [{ find: 'this.#hold(Buffer.byteLength(this.#text));', replace: '' }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the translator of Responses requests reserves memory for bytes before it creates them, and none for bytes that it passes on',
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
          'memory for the parts of a request that its translated response repeats is reserved before the request is sent, and freed when the client leaves',
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
          'a body that is taken in is freed when it is refused, either while it arrives or once it is complete',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: metadata of the client leaves',
    file: 'lib/responses-api/request-members.ts',
    edits: [
      { find: "...here(\n    'object',\n    'text',", replace: "...same(\n    'object',\n    'text'," },
    ],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the translator of Responses requests sends no metadata, ids or unknown members of the client to the service',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API of the library: a stream that fails has no response.failed',
    file: 'lib/client-library/respond.ts',
    edits: [{ find: 'translator?.fail(error) ?? ', replace: '' }],
    tests: [
      {
        file: 'test/client-library/responses-api.test.ts',
        names: [
          'the Responses API of the library ends a stream under the fault flip_tag:2 with response.failed and an error, and completes no tool call',
        ],
      },
    ],
  },
  {
    defence: 'a response of the library that nobody reads: it holds its connection for ever',
    file: 'lib/client-library/response-chunks.ts',
    edits: [
      {
        find: 'let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;',
        replace: 'const reader = response.body?.getReader();',
      },
      { find: '      reader = response.body?.getReader();\n', replace: '' },
    ],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          'a request through the client library ends its connection if its response is garbage-collected, and nobody has read it',
        ],
      },
    ],
  },
  {
    defence: 'the time-outs of the library: a blocked event loop counts as silence of the service',
    file: 'lib/network/upstream-failure.ts',
    edits: [{ find: 'timer = setTimeout(late, 0);', replace: 'late();' }],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          'a request through the client library is answered if the event loop was blocked when the answer came, beyond firstByteTimeout',
          'a request through the client library gets its whole answer if the event loop was blocked when the rest came, beyond streamIdleTimeout',
        ],
      },
    ],
  },
];
