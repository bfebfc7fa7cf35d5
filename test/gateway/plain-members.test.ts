/** Members that leave unencrypted: only values that the API knows, or nothing leaves at all. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CANARY, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import {
  chunked,
  DONE,
  http,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const CHAT = '/v1/chat/completions';
const COMPLETIONS = '/v1/completions';
const MESSAGES = '/v1/messages';
const EMBEDDINGS = '/v1/embeddings';
const FORMS = '/v1/audio/transcriptions';

/** A request with one member, or form field, of that text. */
function request(path: string, member: string, value: string): Buffer {
  if (path !== FORMS) {
    return post(`{"model":"m","messages":[],"prompt":"p","input":"i","${member}":${value}}`, { path });
  }
  const parts = [
    ['model"', 'm'],
    ['file"; filename="a.wav"', 'RIFF'],
    [`${member}"`, value],
  ].map(([name, text]) => `--b\r\nContent-Disposition: form-data; name="${name}\r\n\r\n${text}\r\n`);
  const form = post(`${parts.join('')}--b--\r\n`, { path }).toString('latin1');
  return Buffer.from(form.replace('application/json', 'multipart/form-data; boundary=b'), 'latin1');
}

const COUNTS = ['n', 'max_tokens', 'max_completion_tokens'];
const FORM_FLAGS = ['stream', 'stream_include_usage', 'stream_continuous_usage_stats'];

const WRONG: readonly [paths: readonly string[], members: readonly string[], values: readonly string[]][] = [
  [
    [CHAT, COMPLETIONS],
    COUNTS,
    [`"${CANARY}"`, '""', '"12345678901"', '-1', '1.5', '1e300', '9007199254740992', 'true', '[]', '{}'],
  ],
  [[CHAT, COMPLETIONS, MESSAGES], ['stream'], [`"${CANARY}"`, '"true"', '1', '0', '1.0', '[true]', '{}']],
  [
    [CHAT, COMPLETIONS],
    ['stream_options'],
    [
      `"${CANARY}"`,
      `{"${CANARY}":true}`,
      `{"include_usage":"${CANARY}"}`,
      '{"include_usage":true,"include_usage":true}',
      '{"include_usage":true,"include\\u005fusage":true}',
      '{"include_usage":null}',
      '{"include_usage":1}',
      '{"include_usage":{}}',
      '{"":true}',
      '[]',
      'true',
      `{${' '.repeat(4096)}}`,
    ],
  ],
  [[FORMS], FORM_FLAGS, [CANARY, '1', '0', 'yes', 'on', '', 'null', '"true"']],
];

const RIGHT: readonly [paths: readonly string[], members: readonly string[], values: readonly string[]][] = [
  [[CHAT, COMPLETIONS], COUNTS, ['0', '1', '2.0', '1e3', '"7"', '"0123456789"', 'null']],
  [[CHAT, COMPLETIONS, MESSAGES], ['stream'], ['true', 'false', 'null']],
  [
    [CHAT, COMPLETIONS],
    ['stream_options'],
    ['null', '{}', '{ "include_usage" : true, "continuous_usage_stats":false,"include_obfuscation":true}'],
  ],
  [[FORMS], FORM_FLAGS, ['true', 'false', 'True', 'FALSE']],
];

const SEALED: readonly [path: string, members: readonly string[]][] = [
  [MESSAGES, [...COUNTS, 'stream_options']],
  [EMBEDDINGS, [...COUNTS, 'stream_options', 'stream']],
];

describe('plain members', { concurrency: true }, () => {
  for (const [paths, members, values] of WRONG) {
    for (const path of paths) {
      it(`${path}: an invalid ${members.join(', ')} gets 400, and nothing is sent`, async (t) => {
        const { upstream, ask } = await gatewayFixture(t);
        for (const member of members) {
          for (const value of values) {
            const answer = await ask(request(path, member, value));
            const row = `${member}: ${value.slice(0, 60)}`;
            const { type, error } = JSON.parse(answer.body) as {
              type?: string;
              error: { type: string; code: string; message: string };
            };
            assert.deepEqual(
              [answer.status, type, error.type, error.code],
              [400, path === MESSAGES ? 'error' : undefined, 'invalid_request_error', 'invalid_plain_member'],
              row,
            );
            assert.ok(error.message.startsWith(`"${member}" must be `), error.message);
            assert.ok(!answer.body.includes(CANARY), 'the answer quotes the body');
          }
        }
        assert.equal(upstream.connections.total, 0);
      });
    }
  }

  for (const [paths, members, values] of RIGHT) {
    for (const path of paths) {
      it(`${path}: a valid ${members.join(', ')} is sent byte for byte`, async (t) => {
        const { upstream, ask } = await gatewayFixture(t, {
          answers: http(400, 'enough', { 'Privatemode-Encrypted': 'false' }),
        });
        for (const member of members) {
          for (const value of values) {
            const answer = await ask(request(path, member, value));
            assert.ok(!answer.body.includes('invalid_plain_member'), `${member}: ${value}`);
            const sent = upstream.requests.at(-1)?.body?.toString() as string;
            const written = path === FORMS ? `name="${member}"\r\n\r\n${value}\r\n` : `"${member}":${value}`;
            assert.ok(sent.includes(written), `${member}: ${value}`);
          }
        }
        assert.equal(upstream.requests.length, members.length * values.length);
      });
    }
  }

  for (const [path, members] of SEALED) {
    it(`${path}: ${members.join(', ')} may hold any value, since they are encrypted`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, {
        answers: http(400, 'enough', { 'Privatemode-Encrypted': 'false' }),
      });
      for (const member of members) {
        const answer = await ask(request(path, member, `"${CANARY}"`));
        assert.ok(!answer.body.includes('invalid_plain_member'), member);
      }
      assert.equal(upstream.requests.length, members.length);
    });
  }
});

describe('a completions stream with two finished choices', { concurrency: true }, () => {
  for (const [members, complete] of [
    [{ prompt: ['a', 'b'] }, true],
    [{ prompt: ['a', 'b'], n: '2' }, false],
    [{ prompt: ['a', 'b', 'c'] }, false],
    [{ prompt: 'a', prompt_embeds: ['e', 'f'] }, false],
    [{ prompt: [1, 2, 3], n: 2 }, true],
  ] as const) {
    it(`is ${complete ? 'complete' : 'stream_unfinished'} for ${JSON.stringify(members)}`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        const chunk = (index: number, finish_reason: string | null): string =>
          sealed.event({
            id: 'cmpl-1',
            object: 'text_completion',
            created: 1,
            model: 'm',
            choices: [{ index, text: 'x', logprobs: null, finish_reason }],
          });
        const events = [chunk(0, null), chunk(1, null), chunk(1, 'stop'), chunk(0, 'length'), DONE];
        await scripted.write(STREAM_HEAD + events.map(chunked).join('') + LAST_CHUNK);
      });
      const body = chatBody({ messages: undefined, stream: true, ...members });
      const answer = await ask(post(body, { path: COMPLETIONS }));
      assert.equal(answer.body.includes('[DONE]'), complete);
      assert.equal(answer.body.includes('"code":"stream_unfinished"'), !complete);
    });
  }
});
