/** Faults in the translation of the Responses API. */
import type { Mutation } from './mutation.ts';

export const RESPONSES_API: readonly Mutation[] = [
  {
    defence: 'the Responses API: calls of a response that was cut by length are done, and agents run them',
    file: 'lib/responses-api/translate-chunks.ts',
    edits: [{ find: "const calls = status === 'completed' ?", replace: 'const calls = status.length > 0 ?' }],
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
    defence: 'the Responses API: a call whose arguments were cut is done, and agents run it',
    file: 'lib/responses-api/calls.ts',
    edits: [{ find: 'const input = isCut(args) ?', replace: 'const input = Date.now() < 0 ?' }],
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
    defence: 'the Responses API: a call changes its name after its first piece has been told',
    file: 'lib/responses-api/translate-chunks.ts',
    edits: [{ find: 'if (isText(name) && name !== call.chatName)', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: ['a Responses stream ends in response.failed at a call that changes its name'],
      },
    ],
  },
  {
    defence: 'the Responses API: an imperfect custom call whose string was cut is done, and agents run it',
    file: 'lib/responses-api/calls.ts',
    edits: [
      {
        find: '(end >= args.length || (rest && rest[1] === undefined))) return undefined;',
        replace: 'Date.now() < 0) return undefined;',
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
    file: 'lib/responses-api/calls.ts',
    edits: [{ find: '(\\}[^"]*)?$/;', replace: '([^]*)$/;' }],
    tests: [
      {
        file: 'test/responses-api/stream.test.ts',
        names: [
          'a Responses stream has the whole arguments of a custom call as its input if their first string is not all of it: {"input":"rm "x" y"}',
          'a Responses stream has the whole arguments of a custom call as its input if their first string is not all of it: {"input":"f({a:"}")"}',
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
    defence: 'the Responses API: JSON.parse sees a request of any number of values, members and levels',
    file: 'lib/responses-api/translate-request.ts',
    edits: [{ find: 'if (!isParsable(scanned))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/responses-api/hostile-requests.test.ts',
        names: [
          'a Responses request is refused with 413 beyond 200,000 values',
          'a Responses request is refused with 413 beyond 20,000 members of objects',
          'a Responses request is refused with 413 beyond 64 levels',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: what is made of a request is reserved by nobody',
    file: 'lib/responses-api/translator.ts',
    edits: [{ find: 'on.hold?.(COPIES.request * bytes.length);', replace: '' }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the body of a translated request reserves memory for four times its bytes before it is translated',
        ],
      },
    ],
  },
  {
    defence: 'the Responses API: metadata of the client leaves',
    file: 'lib/responses-api/request-members.ts',
    edits: [{ find: "...['stream', 'parallel_tool_calls',", replace: "...['metadata', 'stream'," }],
    tests: [
      {
        file: 'test/responses-api/request.test.ts',
        names: [
          'the translator of Responses requests sends no metadata, ids or unknown members of the client to the service',
        ],
      },
    ],
  },
];
