/**
 * What is read from a JSON request body, and what is refused with a 400 before anything of it is encrypted.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import type { SaltedBody } from '../../lib/pipeline/inject-salt.ts';
import { bodyReader } from '../../lib/pipeline/request-body.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import { EXCHANGE, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { formBody } from '../support/remote/forms.ts';
import { literalUnsealObject } from '../support/remote/literal-envelope.ts';
import { type JsonEndpoint, jsonBody, prepare, sealText } from '../support/remote/sealing.ts';
import requests from '../vectors/inference/field-encryption-requests.json' with { type: 'json' };

const { mustReject } = requests;

const prepareText = (text: string, endpoint: JsonEndpoint = {}): SaltedBody =>
  prepare(jsonBody(endpoint), text);

describe('a JSON request body is refused with a 400', () => {
  for (const { name, input } of mustReject) {
    it(name, () => {
      assert.throws(
        () => prepareText(input),
        (error: { status: number }) => error.status === 400,
      );
    });
  }

  for (const [code, what, model] of [
    ['missing_model', 'is absent', '"messages":[]'],
    ['missing_model', 'has only blanks', '"model":"  \\t "'],
    ['missing_model', 'has its name in another case', '"Model":"m"'],
    ['invalid_model', 'is a number', '"model":1'],
    ['invalid_model', 'begins with a blank', '"model":" m"'],
    ['invalid_model', 'ends with a blank', '"model":"m\\u0020"'],
    ['invalid_model', 'has NUL', '"model":"a\\u0000"'],
    ['invalid_model', 'has a lone surrogate', '"model":"\\ud800"'],
    ['invalid_model', 'has 257 bytes', `"model":"${'é'.repeat(128)}x"`],
  ] as const)
    it(`as ${code} if the model ${what}`, () => assert.throws(() => prepareText(`{${model}}`), { code }));

  it('for a model that is far too long, without decoding it, but not for one of 256 escaped bytes', () => {
    const escaped = (count: number) => `{"model":"${'\\u0041'.repeat(count)}"}`;
    assert.equal(prepareText(escaped(256)).model, 'A'.repeat(256));
    assert.throws(() => prepareText(escaped(700)), { code: 'invalid_model', message: /no short string/ });
  });
});

describe('reading a JSON request body', () => {
  it('gives the model, decoded', () => {
    assert.equal(prepareText('{"mo\\u0064el":"a\\u00e9\u{1f600}"}').model, 'aé😀');
    assert.equal(prepareText(`{"model":"${'é'.repeat(128)}"}`).model, 'é'.repeat(128));
    assert.equal(prepareText(`{"messages":"${'x'.repeat(4096)}","model":"m"}`).model, 'm');
  });

  it('says that the response streams only if stream is true', () => {
    assert.equal(prepareText('{"model":"m","stream":true}').streaming, true);
    for (const value of ['false', 'null']) {
      assert.equal(prepareText(`{"model":"m","stream":${value}}`).streaming, false);
    }
    assert.equal(prepareText('{"model":"m"}').streaming, false);
    assert.equal(prepareText('{"model":"m","a":{"stream":true}}').streaming, false);
    assert.equal(prepareText('{"model":"m","stream":true}', { plain: PLAIN_MEMBERS.E }).streaming, false);
  });

  it('gives n as the number of choices of an honest response', () => {
    for (const [n, choices] of [
      ['3', 3],
      ['2.0', 2],
      [`2.${'0'.repeat(4000)}`, 2],
      ['9007199254740991', 9_007_199_254_740_991],
      ['0', 1],
      ['"0000000012"', 12],
      ['"\\u0032"', 2],
      ['null', 1],
    ] as const) {
      assert.equal(prepareText(`{"model":"m","n":${n}}`).choices, choices, n);
    }
    assert.equal(prepareText('{"model":"m"}').choices, 1);
    assert.equal(prepareText('{"model":"m","n":2,"prompt":["a","b"]}').choices, 2, 'a chat has no prompts');
    for (const plain of [PLAIN_MEMBERS.M, PLAIN_MEMBERS.E]) {
      assert.equal(prepareText('{"model":"m","n":2}', { plain }).choices, 1, 'no API of choices');
    }
  });

  it('gives no shard key and adds no salt if the endpoint has none', async () => {
    const prepared = prepareText('{"model":"m"}', { plain: PLAIN_MEMBERS.E });
    assert.equal(prepared.shardKey, undefined);
    assert.equal(await sealText(prepared, fixedCipher()), '{"model":"m"}');
  });
});

describe('the prompts of completions', () => {
  const COMPLETIONS: JsonEndpoint = { id: 'completions', salted: true };
  const choicesOf = (text: string): number => prepareText(text, COMPLETIONS).choices;

  for (const [members, choices] of [
    ['', 1],
    ['"prompt":null', 1],
    ['"prompt":"a"', 1],
    ['"prompt":[]', 1],
    ['"prompt":["a","b","c"]', 3],
    ['"prompt":["a","b","c"],"n":4', 12],
    ['"prompt":["a","b","c"],"n":"4"', 12],
    ['"prompt":["[,]","\\"]"]', 2],
    ['"prompt":[1,2,3],"n":2', 2],
    ['"prompt":[[1,2,3],[4],[]]', 3],
    ['"prompt":[{"a":["b"]},{}]', 2],
    ['"prompt_embeds":["e","f"]', 2],
    ['"prompt_embeds":["e","f"],"prompt":["a","b"]', 4],
    ['"prompt_embeds":["e","f"],"prompt":"","n":3', 9],
    ['"a":{"prompt":["a","b"]},"\\u0070rompt":["a","b","c"]', 3],
  ] as const) {
    it(`give ${choices} as the number of choices: {${members}}`, () => {
      assert.equal(choicesOf(`{"model":"m"${members === '' ? '' : ','}${members}}`), choices);
    });
  }
});

describe('the value of a plain member of a JSON request body', () => {
  const COUNTS = ['n', 'max_tokens', 'max_completion_tokens'];

  const OPTIONS = '{"include_usage":true ,"continuous_usage_stats":false,"include_obfuscation":null}';
  const ROWS: readonly (readonly [
    members: readonly string[],
    passed: readonly string[],
    refused: readonly string[],
  ])[] = [
    [
      COUNTS,
      ['null', '0', '-0', '1', '2.0', '1e3', '9007199254740991', '"0123456789"', '"\\u0031"'],
      [
        ...'-1 1.5 1e-3 1e16 1e999 9007199254740992 true [1] {} "" "1\\n" "+1" "1e3" "12345678901" "secret"'.split(
          ' ',
        ),
        ...['" 1"', '"\u0661"'],
      ],
    ],
    [['stream'], ['null', 'true', 'false'], ['0', '"true"', '[]', '{}', '"secret"']],
    [
      ['stream_options'],
      ['null', '{}', '{"include_usage":true}', '{"include\\u005fusage":false}', OPTIONS],
      [
        'true',
        '[]',
        '"secret"',
        '{"include_usage":1}',
        '{"include_usage":[null]}',
        '{"Include_usage":true}',
        '{"x":true}',
        '{"":true}',
        '{"include_usage":true,"include_usage":true}',
        '{"include_usage":{"secret":true}}',
      ],
    ],
  ];

  for (const [members, passed, refused] of ROWS) {
    for (const member of members) {
      const text = (value: string) => `{"model":"m","${member}": ${value} }`;
      it(`passes as it was written if the rule of ${member} allows it`, async () => {
        for (const value of passed) {
          assert.equal(await sealText(prepareText(text(value)), fixedCipher()), text(value));
        }
      });
      it(`is refused by an error that names ${member} only if its rule does not allow it`, () => {
        const message = new RegExp(`^"${member}" must be (an integer|true|null)(?!.*secret)`);
        for (const value of refused) {
          assert.throws(() => prepareText(text(value)), { code: 'invalid_plain_member', message }, value);
        }
      });
    }
  }

  it('is checked only if the member stays plain', async () => {
    for (const [plain, sealed] of [
      [PLAIN_MEMBERS.M, ['n', 'max_tokens', 'max_completion_tokens', 'stream_options']],
      [PLAIN_MEMBERS.E, ['n', 'max_tokens', 'max_completion_tokens', 'stream_options', 'stream']],
    ] as const) {
      for (const name of sealed) {
        const text = await sealText(prepareText(`{"model":"m","${name}":"words"}`, { plain }), fixedCipher());
        assert.equal(literalUnsealObject(EXCHANGE, text, ['model']).get(name), '"words"');
      }
    }
    assert.throws(() => prepareText('{"model":"m","stream":"words"}', { plain: PLAIN_MEMBERS.M }), {
      code: 'invalid_plain_member',
    });
  });

  it('is taken up to 4 KiB of JSON, and refused with a byte more', () => {
    const number = (bytes: number) => `1.${'0'.repeat(bytes - 2)}`;
    const options = (bytes: number) => `{${' '.repeat(bytes - 2)}}`;
    // All of these say what the member may say: nothing but their length is refused.
    for (const [member, value] of [
      ...COUNTS.map((name) => [name, number] as const),
      ['stream_options', options] as const,
    ]) {
      const text = (bytes: number) => `{"model":"m","${member}":${value(bytes)}}`;
      assert.equal(prepareText(text(4096)).model, 'm', member);
      for (const bytes of [4097, 1_000_000])
        assert.throws(() => prepareText(text(bytes)), { code: 'invalid_plain_member' }, `${member} ${bytes}`);
    }
  });
});

describe('a plain member', () => {
  const FORM_TYPE = 'multipart/form-data; boundary=B';
  /**
   * A body of that codec with that member beside its model; in JSON a value that no member may have in clear.
   */
  const bodies = {
    json: (name: string) => (name === 'model' ? '{"model":{}}' : `{"model":"m","${name}":{"text":"hidden"}}`),
    multipart: (name: string) => {
      const model = name === 'model' ? [] : [{ name: 'model', body: Buffer.from('m') }];
      return formBody('B', [...model, { name, body: Buffer.from('hid\x01den') }]).toString();
    },
  };
  const take = async (endpoint: Parameters<typeof bodyReader>[0], name: string): Promise<unknown> => {
    const text = bodies[endpoint.codec as 'json' | 'multipart'](name);
    return bodyReader(endpoint, FORM_TYPE)!(Buffer.from(text), {});
  };

  for (const endpoint of ENDPOINTS) {
    for (const name of endpoint.requestPlain) {
      it(`is refused with a text that its rule forbids: ${name} of ${endpoint.id}`, async () => {
        const code = name === 'model' ? 'invalid_model' : 'invalid_plain_member';
        await assert.rejects(take(endpoint, name), { code, status: 400 });
      });
    }
  }

  for (const [codec, id] of [
    ['json', 'chat'],
    ['multipart', 'transcription'],
  ] as const) {
    it(`makes its endpoint refuse every request if it has no rule: ${codec}`, async () => {
      const endpoint = { id, codec, requestPlain: new Set(['model', 'user']), salted: false };
      await assert.rejects(take(endpoint, 'language'), { code: 'internal', message: /"user"/ });
    });
  }
});

describe("Anthropic's web search tool", () => {
  const OWN = '{"name":"web_search","description":"my own","input_schema":{"type":"object"}}';
  const take = (tools: string, id: 'messages' | 'chat' = 'messages') =>
    prepareText(`{"model":"m","tools":${tools}}`, { id, salted: true });

  for (const [what, tools] of [
    ['as the only tool', '[{"type":"web_search_20250305","name":"s"}]'],
    ['behind another', `[${OWN},{"name":"s","type":"web_search_20260209"}]`],
    ['of a version that is no date', '[{"type":"web_search_latest","name":"s"}]'],
    ['with an escape in its type', '[{"type":"web\\u005fsearch_20250305"}]'],
    ['with an escape in a key', '[{"ty\\u0070e":"web_search_20250305"}]'],
  ] as const) {
    it(`is refused by its type, ${what}`, () => {
      const message = 'no web_search tool: the service searches no web';
      assert.throws(() => take(tools), { code: 'hosted_tool_refused', status: 400, message });
    });
  }

  it('is not searched for in a tool of more than 32 MiB, which is refused', () => {
    assert.throws(() => take(`[{"name":"${'x'.repeat(33_554_432)}"}]`), { code: 'body_too_large' });
  });

  it('is not recognised by another member, in a schema, or in another API', () => {
    const nested = '{"type":"object","properties":{"type":{"type":"web_search_20250305"}}}';
    for (const tools of [
      `[${OWN}]`,
      '[{"type":"custom","name":"web_search_20250305"}]',
      `[{"name":"a","input_schema":${nested}}]`,
      '[{"type":"my_web_search_20250305","name":"a"}]',
      'null',
    ]) {
      take(tools);
    }
    take('[{"type":"web_search_20250305"}]', 'chat');
  });
});
