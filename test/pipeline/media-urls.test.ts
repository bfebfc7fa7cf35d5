import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { PLAIN_MEMBERS } from '../../lib/pipeline/member-order.ts';
import { createJsonSealer } from '../../lib/pipeline/seal-json.ts';
import { byteByByte, cutAt } from '../support/chunkings.ts';
import { prepare } from '../support/sealing.ts';

const SECRET = 'geheimer-ort.example';

function check(messages: unknown, chunked: (bytes: Buffer) => Uint8Array[] = (bytes) => [bytes]): void {
  const stage = createJsonSealer({ plain: PLAIN_MEMBERS.C, salt: { configured: undefined } });
  prepare(stage, chunked(Buffer.from(JSON.stringify({ model: 'm', messages }))));
}

const user = (...content: unknown[]) => [{ role: 'user', content }];
const text = { type: 'text', text: 'what is "url" and "image_url": \\"http://x\\"?' };

const accepted: Record<string, unknown> = {
  'an https image': user({ type: 'image_url', image_url: { url: `https://${SECRET}/a.png` } }),
  'an https image in upper case': user({ type: 'image_url', image_url: { url: `HTTPS://${SECRET}` } }),
  'a data image': user(text, {
    type: 'image_url',
    image_url: { url: 'data:image/png;base64,AAAA', detail: 'low' },
  }),
  'an image as a bare string': user({ type: 'image_url', image_url: `https://${SECRET}` }),
  'input_audio, which is no URL': user({ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }),
  'text that speaks of URLs': user(text),
  'text that is a URL': [{ role: 'user', content: `http://${SECRET} "image_url":"http://x"` }],
  'URLs in the arguments of a tool call': [
    {
      role: 'assistant',
      tool_calls: [{ function: { name: 'f', arguments: '{"image_url":"http://x","url":1}' } }],
    },
  ],
  'a url null': user({ type: 'image_url', image_url: null, audio_url: null, video_url: { url: null } }),
  'an https image of the messages API': user({
    type: 'image',
    source: { type: 'url', url: `https://${SECRET}` },
  }),
  'a base64 image of the messages API': user({
    type: 'image',
    source: { type: 'base64', data: 'AA', url: 'x' },
  }),
  'a document URL of the messages API': user({
    type: 'document',
    source: { type: 'url', url: `http://${SECRET}` },
  }),
  'no list': 'image_url"',
};

const refused: Record<string, unknown> = {
  'an http image': user({ type: 'image_url', image_url: { url: `http://${SECRET}` } }),
  'an http image after its detail': user({
    type: 'image_url',
    image_url: { detail: 'low', url: `http://${SECRET}` },
  }),
  'an http image as a bare string': user({ image_url: `http://${SECRET}` }),
  'a file image': user(text, { type: 'image_url', image_url: { url: `file:///${SECRET}` } }),
  'an image without a scheme': user({ type: 'image_url', image_url: { url: SECRET } }),
  'a blank before the scheme': user({ type: 'image_url', image_url: { url: ` https://${SECRET}` } }),
  'an https audio': user({ type: 'audio_url', audio_url: { url: `https://${SECRET}` } }),
  'a data video': user({ type: 'video_url', video_url: { url: 'data:video/mp4;base64,AAAA' } }),
  'a video as a bare string': user({ video_url: `https://${SECRET}` }),
  'an http image of the messages API': user({
    type: 'image',
    source: { type: 'url', url: `http://${SECRET}` },
  }),
  'an http image in a tool result': user({
    type: 'tool_result',
    content: [text, { type: 'image', source: { type: 'url', url: `http://${SECRET}` } }],
  }),
  'the second of two images, after a large one': user(
    { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(100_000)}` } },
    { type: 'image_url', image_url: { url: `http://${SECRET}` } },
  ),
};

/** The rule, of a parsed value. */
function literallyRefused(parts: unknown): boolean {
  if (!Array.isArray(parts)) return false;
  const at = (value: unknown, key: string): unknown =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)[key]
      : undefined;
  const url = (value: unknown): unknown => (typeof value === 'string' ? value : at(value, 'url'));
  const badImage = (value: unknown): boolean => typeof value === 'string' && !/^(?:https|data):/i.test(value);
  return parts.some((part: unknown) => {
    const source = at(part, 'source');
    return (
      badImage(url(at(part, 'image_url'))) ||
      (at(part, 'type') === 'image' && at(source, 'type') === 'url' && badImage(at(source, 'url'))) ||
      typeof url(at(part, 'audio_url')) === 'string' ||
      typeof url(at(part, 'video_url')) === 'string' ||
      literallyRefused(at(part, 'content'))
    );
  });
}

describe('media URLs', () => {
  for (const [name, messages] of Object.entries(accepted)) {
    it(`passes ${name}`, () => {
      check(messages);
      check(messages, byteByByte);
    });
  }

  for (const [name, messages] of Object.entries(refused)) {
    it(`refuses ${name}, without quoting it`, () => {
      for (const chunked of [undefined, byteByByte, (bytes: Buffer) => cutAt(bytes, [60, 61, 90])]) {
        assert.throws(
          () => check(messages, chunked),
          (error: { code: string; status: number; message: string }) =>
            error.code === 'media_url_refused' && error.status === 400 && !error.message.includes(SECRET),
        );
      }
    });
  }

  it('finds a URL wherever the chunks are cut', () => {
    const messages = refused['an http image'];
    const { length } = JSON.stringify({ model: 'm', messages });
    for (let i = 1; i < length; i++) {
      assert.throws(() => check(messages, (bytes) => cutAt(bytes, [i])), { code: 'media_url_refused' });
    }
  });

  it('is of the endpoints that the service inspects, not of embeddings', () => {
    const stage = createJsonSealer({ plain: PLAIN_MEMBERS.E });
    prepare(stage, [Buffer.from(JSON.stringify({ model: 'm', messages: refused['an http image'] }))]);
  });

  it('decides what a parser would decide, of any messages, in any chunks and spellings', () => {
    // Written by hand, since an object cannot hold a key twice; every sixth character becomes an escape.
    const escapes = (words: string, every: number): string =>
      `"${[...words].map((c, i) => ((i + 1) % every === 0 ? `\\u00${c.charCodeAt(0).toString(16).padStart(2, '0')}` : c)).join('')}"`;
    const string = (...words: string[]) =>
      fc.tuple(fc.constantFrom(...words), fc.integer({ min: 1, max: 40 })).map(([w, n]) => escapes(w, n));
    const key = string('type', 'content', 'image_url', 'audio_url', 'video_url', 'source', 'url', 'ur', '');
    const scalar = fc.oneof(
      string(
        'image',
        'url',
        'https://a',
        'HTTPS:x',
        'data:,',
        'http://a',
        'text',
        'https',
        '',
        'image_url_s',
      ),
      fc.constantFrom('"\\"\\\\"', 'null', '1', 'true', '-1.5e3'),
    );
    const gap = fc.constantFrom('', '', ' ', '\n\t');
    const { value } = fc.letrec<{ value: string; list: string; object: string }>((tie) => ({
      value: fc.oneof({ depthSize: 'medium' }, scalar, tie('object'), tie('list')),
      list: fc
        .tuple(fc.array(fc.oneof(tie('object'), tie('value')), { maxLength: 3 }), gap)
        .map(([items, blank]) => `[${blank}${items.join(`,${blank}`)}]`),
      object: fc
        .tuple(fc.array(fc.tuple(key, tie('value')), { maxLength: 4 }), gap)
        .map(([rows, blank]) => `{${rows.map(([k, v]) => `${blank}${k}${blank}:${v}`).join(',')}${blank}}`),
    }));
    const verdicts = { true: 0, false: 0 };
    const messages = fc.array(value, { minLength: 1, maxLength: 3 }).map((items) => `[${items.join(',')}]`);
    fc.assert(
      fc.property(messages, fc.array(fc.nat(), { maxLength: 5 }), (text, cuts) => {
        const bytes = Buffer.from(`{"messages":${text},"model":"m"}`);
        const chunks = cutAt(
          bytes,
          cuts.map((cut) => cut % bytes.length).sort((a, b) => a - b),
        );
        const bad = literallyRefused(JSON.parse(text));
        verdicts[`${bad}`] += 1;
        const stage = () => createJsonSealer({ plain: PLAIN_MEMBERS.C, salt: { configured: undefined } });
        if (bad) assert.throws(() => prepare(stage(), chunks), { code: 'media_url_refused' }, text);
        else prepare(stage(), chunks);
      }),
      { seed: 20261121, numRuns: 3000 },
    );
    assert.ok(verdicts.true > 100 && verdicts.false > 100, JSON.stringify(verdicts));
  });

  for (const [name, many] of [
    ['short strings', '"",'.repeat(1_400_000)],
    ['short keys', `{${'"a":1,'.repeat(700_000)}"a":1},`],
    ['parts', '{"image_url":"data:"},'.repeat(200_000)],
    ['escapes', `"${'\\n'.repeat(2_000_000)}",`],
  ] as const) {
    it(`are found chunk by chunk, not all at the end: 4 MB of ${name}`, () => {
      const stage = createJsonSealer({ plain: PLAIN_MEMBERS.C, salt: { configured: undefined } });
      const body = Buffer.from(`{"model":"m","messages":[{"content":[${many}{"video_url":"x"}]}]}`);
      let longest = 0;
      let total = 0;
      const timed = (work: () => void): void => {
        const began = performance.now();
        work();
        const took = performance.now() - began;
        longest = Math.max(longest, took);
        total += took;
      };
      for (let i = 0; i < body.length; i += 65_536) timed(() => stage.feed(body.subarray(i, i + 65_536)));
      timed(() => assert.throws(() => stage.finish(), { code: 'media_url_refused' }));
      // A share of the whole, since machines are busy: some 2 %. Parsing the list at the end took 90 %.
      assert.ok(longest < total / 2, `${longest} of ${total} ms`);
    });
  }

  it('decides the same beside any text, in any chunks', () => {
    const odd = fc.string({
      unit: fc.constantFrom('a', '"', '\\', '\\u00', 'é', '\n', '_url"', '😀', '0'),
      minLength: 20,
      maxLength: 90,
      size: 'max',
    });
    fc.assert(
      fc.property(
        fc.array(odd, { maxLength: 5 }),
        fc.boolean(),
        fc.array(fc.nat(), { maxLength: 6 }),
        (texts, bad, cuts) => {
          const parts = texts.map((each) => ({ type: 'text', text: each, [each]: 1 }));
          const image = { type: 'image_url', image_url: { url: bad ? 'http://x' : 'https://x' } };
          const run = () =>
            check(user(...parts, image), (bytes) =>
              cutAt(
                bytes,
                cuts.map((cut) => cut % bytes.length).sort((a, b) => a - b),
              ),
            );
          if (bad) assert.throws(run, { code: 'media_url_refused' });
          else run();
        },
      ),
      { seed: 20261121, numRuns: 500 },
    );
  });
});
