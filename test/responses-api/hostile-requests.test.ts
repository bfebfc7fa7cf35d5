/**
 * Requests that are made to cost more than their bytes: lists of every kind, with names that collide. Steps
 * are counted, not time.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RequestRefusal } from '../../lib/responses-api/request-refusal.ts';
import { RequestTranslation } from '../../lib/responses-api/translate-request.ts';
import { countSteps } from '../support/processes/count-steps.ts'; // before what it counts
import { type Json, translated } from './chat-side.ts';

const fnv = (text: string, from = 0x811c9dc5): number => {
  let hash = from;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
};

/** Two pairs of characters after which the hash is the same, whichever came. */
function collidingPairs(from: number): readonly [string, string] {
  const seen = new Map<number, number>();
  for (let code = 0x100; code < 0xd800; code++) {
    const high = Math.imul(from ^ code, 0x01000193) >>> 16;
    const other = seen.get(high);
    seen.set(high, code);
    if (other === undefined) continue;
    const first = fnv(String.fromCharCode(other), from);
    const low = (first ^ fnv(String.fromCharCode(code), from)) & 0xffff;
    // The second characters differ as the lower halves do; neither may be a surrogate or need an escape.
    for (let second = 0x100; second < 0xd800; second++) {
      const twin = second ^ low;
      if (twin < 0x100 || twin >= 0xd800) continue;
      return [String.fromCharCode(other, second), String.fromCharCode(code, twin)];
    }
  }
  throw new Error('no pair');
}

/** 1024 names that have one digest, where the key begins like that. */
function namesOfOneDigest(kind: string, namespace: string | null): string[] {
  const prefix = JSON.stringify([kind, namespace, '']).slice(0, -2);
  let hash = fnv(`0${prefix}`);
  let names = [''];
  for (let stage = 0; stage < 10; stage++) {
    const pairs = collidingPairs(hash);
    names = names.flatMap((name) => pairs.map((pair) => name + pair));
    hash = fnv(pairs[0], hash);
  }
  return names;
}

const NAMES: Readonly<Record<string, (kind: string, namespace: string | null) => readonly string[]>> = {
  'share one digest': namesOfOneDigest,
  'share one beginning': () => Array.from({ length: 1024 }, (_, i) => `${'x'.repeat(80)}${i}`),
  'contain dots': () => Array.from({ length: 1024 }, (_, i) => `a.${i}`),
  'are plain': () => Array.from({ length: 1024 }, (_, i) => `f${i}`),
  'are all the same': () => Array(1024).fill('f'),
};

const fn = (name: string) => ({ type: 'function', name, parameters: {} });
const custom = (name: string) => ({ type: 'custom', name });
const user = { role: 'user', content: 'x' };
const call = (name: string) => ({ type: 'function_call', call_id: 'c', name, arguments: '{}' });
const namespaced = (tools: readonly object[]) => ({ type: 'namespace', name: 'n', tools });

interface List {
  readonly kind: string;
  readonly namespace?: string;
  readonly request: (names: readonly string[]) => Json;
}
const LISTS: Readonly<Record<string, List>> = {
  tools: { kind: 'function', request: (names) => ({ tools: names.map(fn) }) },
  'custom tools': { kind: 'custom', request: (names) => ({ tools: names.map(custom) }) },
  'tools of a namespace': {
    kind: 'function',
    namespace: 'n',
    request: (names) => ({ tools: [namespaced(names.map(fn))] }),
  },
  namespaces: {
    kind: 'function',
    request: (names) => ({ tools: names.map((name) => ({ ...namespaced([fn('f')]), name })) }),
  },
  'hosted tools': { kind: '', request: (names) => ({ tools: names.map((type) => ({ type })) }) },
  'additional tools': {
    kind: 'function',
    request: (names) => ({ input: [{ type: 'additional_tools', tools: names.map(fn) }, user] }),
  },
  'tools that a search found': {
    kind: 'function',
    request: (names) => ({
      input: [{ type: 'tool_search_output', execution: 'client', call_id: 'c', tools: names.map(fn) }],
    }),
  },
  'earlier calls': { kind: 'function', request: (names) => ({ input: names.map(call) }) },
  'earlier custom calls': {
    kind: 'custom',
    request: (names) => ({
      input: names.map((name) => ({ type: 'custom_tool_call', call_id: 'c', name, input: '"' })),
    }),
  },
  'tools that are allowed': {
    kind: 'function',
    request: (names) => ({
      tools: names.map(fn),
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: names.map(fn) },
    }),
  },
  'namespaces that are allowed': {
    kind: 'function',
    namespace: 'n',
    request: (names) => ({
      tools: [namespaced(names.map(fn))],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: names.map(() => namespaced([])) },
    }),
  },
  'parts of a message': {
    kind: '',
    request: (names) => ({
      input: [{ role: 'user', content: names.map((text) => ({ type: 'input_text', text })) }],
    }),
  },
  'instructions that lead': {
    kind: '',
    request: (names) => ({ input: names.map((content) => ({ role: 'developer', content })) }),
  },
  reasoning: {
    kind: '',
    request: (names) => ({
      input: [
        ...names.map((text) => ({ type: 'reasoning', content: [{ type: 'reasoning_text', text }] })),
        user,
      ],
    }),
  },
  'outputs to include': { kind: '', request: (names) => ({ include: names }) },
};

const stepsOf = (work: () => void): number =>
  countSteps((file) => /^lib\/(?:responses-api|pipeline\/json)\//.test(file), work);

/**
 * The most steps between two pieces of the chat request. The body comes in one piece: nothing may depend on
 * how it is cut.
 */
function longestTurn(request: Json): number {
  const translation = new RequestTranslation();
  translation.feed(Buffer.from(JSON.stringify({ model: 'm', input: 'hi', ...request })));
  let longest = 0;
  const pieces = translation.pieces();
  for (let done = false; !done; ) {
    const steps = stepsOf(() => {
      done = pieces.next().done === true;
    });
    longest = Math.max(longest, steps);
  }
  return longest;
}

describe('a Responses request whose lists are long', () => {
  for (const [what, { kind, namespace = null, request }] of Object.entries(LISTS)) {
    // Names are made for all lists by one function, so names of every kind in one of them are enough.
    const kinds = what === 'tools' ? Object.entries(NAMES) : Object.entries(NAMES).slice(0, 1);
    for (const [which, make] of kinds) {
      it(`costs steps in proportion to its bytes for a list of ${what} whose names or texts ${which}`, () => {
        const names = make(kind, namespace);
        const [few, many] = [128, 500].map((count) => {
          const asked = request(names.slice(0, count));
          return stepsOf(() => translated(asked)) / JSON.stringify(asked).length;
        });
        assert.ok(many! < 1.5 * few!, `${few} steps a byte, then ${many}`);
      });
    }
  }

  const text = 'x'.repeat(1_000);
  const SHARED: Readonly<Record<string, object>> = {
    'calls in one message': { ...call('f'), arguments: text },
    'instructions in one message': { role: 'developer', content: text },
    'reasoning of one message': { type: 'reasoning', content: [text] },
    'tools in many items': { type: 'additional_tools', tools: [{ ...fn('f'), description: text }] },
  };
  for (const [what, item] of Object.entries(SHARED)) {
    it(`blocks other requests no longer if it has more items: ${what}`, () => {
      const turn = (count: number) => longestTurn({ input: [...Array(count).fill(item), user] });
      // The engine loses a part of the counts in one run of twenty; it never adds any.
      const few = Math.max(turn(50), turn(50), turn(50));
      const many = turn(200);
      assert.ok(many < 1.5 * few, `${few} steps, then ${many}`);
    });
  }

  const PARTS = Array(33_000).fill({ type: 'input_text', text: '' });
  const LARGEST: Readonly<Record<string, Json>> = {
    'a message of many parts': { input: [{ role: 'user', content: PARTS }] },
    'instructions of many parts': { input: [{ role: 'system', content: PARTS }, user] },
    'reasoning of many texts': { input: [{ type: 'reasoning', content: Array(99_000).fill('') }, user] },
    'many tools of one name': { tools: Array(24_000).fill(fn('f')) },
    'many choices of one tool': {
      tools: [fn('f')],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: Array(24_000).fill(fn('f')) },
    },
    'a custom call that is all quotes': {
      input: [{ type: 'custom_tool_call', call_id: 'c', name: 'f', input: '"'.repeat(250_000) }],
    },
    'arguments of many numbers': {
      input: [{ ...call('f'), arguments: JSON.stringify({ a: Array(500_000).fill(0) }) }],
    },
    'a schema of many numbers': { tools: [{ ...fn('f'), parameters: { enum: Array(99_000).fill(0) } }] },
    'a text of 2 MiB': { input: 'x'.repeat(2 * 1024 * 1024) },
  };
  for (const [what, request] of Object.entries(LARGEST)) {
    it(`blocks other requests for 3 million steps at most: ${what}`, () => {
      const steps = longestTurn(request);
      assert.ok(steps < 3_000_000, String(steps));
    });
  }

  it('has a unique chat name for each tool, even if digests collide and numbered names are taken', () => {
    const names = namesOfOneDigest('function', null).slice(0, 500);
    const first = translated({ tools: names.slice(0, 2).map(fn) });
    const [, second = ''] = [...first.context.origins.keys()];
    const numbered = Array.from({ length: 500 }, (_, i) => second.replace(/\d+$/, String(i + 2)));
    const { context } = translated({ tools: [...names, ...numbered].map(fn) });
    assert.deepEqual(
      [...context.origins.values()].map(({ name }) => name).sort(),
      [...names, ...numbered].sort(),
    );
    for (const name of context.origins.keys()) assert.match(name, /^[\w-]{1,64}$/);
  });

  const names = NAMES['are plain']!('', null);
  const many = (count: number) => Array.from({ length: count }, (_, i) => `g${i}`);
  const MOST: Readonly<Record<string, (count: number) => Json>> = {
    tools: (count) => ({ tools: many(count).map(fn) }),
    'tools of a namespace': (count) => ({ tools: [namespaced(many(count).map(custom))] }),
    'hosted tools': (count) => ({ tools: many(count).map((type) => ({ type })) }),
    'additional tools': (count) => ({
      tools: many(count - 1).map(fn),
      input: [{ type: 'additional_tools', tools: [fn('one')] }, user],
    }),
    'earlier calls': (count) => ({ tools: many(count - 24).map(fn), input: names.slice(0, 24).map(call) }),
  };
  for (const [what, request] of Object.entries(MOST)) {
    it(`may name 1,024 different tools, and is refused with more: ${what}`, () => {
      assert.doesNotThrow(() => translated(request(1_024)));
      assert.throws(() => translated(request(1_025)), RequestRefusal);
    });
  }

  it('may name the same tools as often as it likes', () => {
    const again = Array.from({ length: 5 }, () => ({ type: 'additional_tools', tools: names.map(fn) }));
    assert.equal(translated({ input: [...again, user] }).context.origins.size, 1_024);
  });

  const LONG: Readonly<Record<string, (name: string) => Json>> = {
    'a name': (name) => ({ tools: [fn(name)] }),
    'a namespace': (name) => ({ tools: [{ ...namespaced([fn('f')]), name }] }),
    'a hosted type': (type) => ({ tools: [{ type }] }),
    'the name of an earlier call': (name) => ({ input: [call(name)] }),
    'the namespace of an earlier call': (namespace) => ({ input: [{ ...call('f'), namespace }] }),
  };
  for (const [what, request] of Object.entries(LONG)) {
    it(`has ${what} of 256 bytes at most`, () => {
      assert.doesNotThrow(() => translated(request('é'.repeat(128))));
      assert.throws(() => translated(request('é'.repeat(129))), RequestRefusal);
    });
  }
});
