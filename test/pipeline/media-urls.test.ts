import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { isAcceptedImageUrl } from '../../simulator/inference/media-url.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import { jsonBody, takeIn } from '../support/remote/sealing.ts';

const SECRET = 'geheimer-ort.example';

/** Seals a body with these messages, given as JSON text. */
function checkText(messages: string): void {
  takeIn(jsonBody({ salted: true }), `{"model":"m","messages":${messages}}`);
}
const check = (messages: unknown): void => checkText(JSON.stringify(messages));

/** Whether the sealer refuses the messages, for the URLs in them. */
function refuses(messages: string): boolean {
  try {
    checkText(messages);
    return false;
  } catch (error) {
    assert.equal((error as { code?: string }).code, 'media_url_refused', messages);
    return true;
  }
}

/** JSON text of a string; every n-th character is an escape. */
const spelled = (words: string, every: number): string =>
  `"${Array.from({ length: words.length }, (_, i) =>
    (i + 1) % every === 0
      ? `\\u${words.charCodeAt(i).toString(16).padStart(4, '0')}`
      : JSON.stringify(words[i]).slice(1, -1),
  ).join('')}"`;

const imagesText = (...urls: string[]): string =>
  `[{"role":"user","content":[${urls.map((url) => `{"type":"image_url","image_url":{"url":${url}}}`).join(',')}]}]`;

const user = (...content: unknown[]) => [{ role: 'user', content }];
/** A part of that kind with this value. */
const part = (type: string, value: unknown) => user({ type, [type]: value });
const image = (url: string) => part('image_url', { url });
const source = (value: unknown, type = 'image') => user({ type, source: value });
const text = { type: 'text', text: 'what is "url" and "image_url": \\"http://x\\"?' };

const accepted: Record<string, unknown> = {
  'an https image': image(`https://${SECRET}/a.png`),
  'a data image': part('image_url', { url: 'data:image/png;base64,AAAA', detail: 'low' }),
  'an image as a bare string': part('image_url', `https://${SECRET}`),
  'an authority of 8192 characters': image(`https://${'a'.repeat(8192)}/`),
  'surrogates in a pair': image('data:,\ud83d\ude00'),
  'input_audio, which is no URL': part('input_audio', { data: 'AAAA', format: 'wav' }),
  'text that speaks of URLs': user(text),
  'text that is a URL': [{ role: 'user', content: `http://${SECRET} "image_url":"http://x"` }],
  'URLs in the arguments of a tool call': [
    { role: 'assistant', tool_calls: [{ function: { arguments: '{"image_url":"http://x","url":1}' } }] },
  ],
  'a url that is null': user({ image_url: null, audio_url: null, video_url: { url: null } }),
  'an https image of the messages API': source({ type: 'url', url: `https://${SECRET}` }),
  'a base64 image of the messages API': source({ type: 'base64', media_type: 'image/png', data: 'AA' }),
  'a document of text': source({ type: 'text', media_type: 'text/plain', data: 'http://x' }, 'document'),
  'a source that is a string': user({ type: 'search_result', source: `http://${SECRET}` }),
  'messages that are no list': 'image_url"',
};

const refused: Record<string, unknown> = {
  'an http image': image(`http://${SECRET}`),
  'an http image after its detail': part('image_url', { detail: 'low', url: `http://${SECRET}` }),
  'an http image as a bare string': part('image_url', `http://${SECRET}`),
  'a file image': image(`file:///${SECRET}`),
  'half a surrogate pair': image('data:,\ud800A'),
  'a line break in base64': image('data:image/png;base64,AAAA\nAAAA'),
  'a control character in the fragment': image(`https://${SECRET}/#a\tb`),
  'an authority of 8193 characters': image(`https://${'a'.repeat(8193)}/`),
  'an https audio': part('audio_url', { url: `https://${SECRET}` }),
  'an audio as a bare string': part('audio_url', `data:audio/wav;base64,${SECRET}`),
  'a data video': part('video_url', { url: 'data:video/mp4;base64,AAAA' }),
  'a video as a bare string': part('video_url', `https://${SECRET}`),
  'a video in a tool result': user({ type: 'tool_result', content: [{ video_url: { url: 'data:,' } }] }),
  'an http image of the messages API': source({ type: 'url', url: `http://${SECRET}` }),
  'an image of the messages API that does not parse': source({ type: 'url', url: `https://${SECRET}:x` }),
  'a source without a type': source({ url: `http://${SECRET}` }, 'text'),
  'an http image in a tool result': user({
    type: 'tool_result',
    content: [text, { type: 'image', source: { type: 'url', url: `http://${SECRET}` } }],
  }),
  'the second of two images, after a large one': user(
    { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(20_000)}` } },
    { type: 'image_url', image_url: { url: `http://${SECRET}` } },
  ),
};

const GOOD = '"https://h/"';
const BAD = `"http://${SECRET}"`;
interface Verdicts {
  readonly go: string;
  readonly accepted: readonly string[];
  readonly refused: readonly string[];
}
const go = JSON.parse(
  readFileSync(new URL('../vectors/media-urls/urls.json', import.meta.url), 'utf8'),
) as Verdicts;
/** Beyond Go's verdict, control characters are refused after a # too. */
const hasControl = (url: string): boolean => /[\x00-\x1f\x7f]/.test(url);
const goodUrls = new Set(go.accepted.filter((url) => !hasControl(url)));
const badUrls = [...go.refused, ...go.accepted.filter(hasControl)];

describe('the check of media URLs', () => {
  for (const [name, messages] of Object.entries(accepted)) it(`passes ${name}`, () => check(messages));

  for (const [name, messages] of Object.entries(refused)) {
    it(`refuses ${name}, without quoting it`, () => {
      assert.throws(
        () => check(messages),
        (error: { code: string; status: number; message: string }) =>
          error.code === 'media_url_refused' && error.status === 400 && !error.message.includes(SECRET),
      );
    });
  }

  it('is not made for embeddings, of which the service inspects no messages', () => {
    const body = JSON.stringify({ model: 'm', messages: refused['an http image'] });
    takeIn(jsonBody({ plain: PLAIN_MEMBERS.E }), body);
  });

  it('finds a URL whose keys are written with escapes', () => {
    assert.ok(refuses(`[{"content":[{"image\\u005furl":{"u\\u0072l":${BAD}}}]}]`));
  });

  it('refuses a repeated key, of which the service reads the first', () => {
    const messages = (...urls: string[]) =>
      `[{"content":[{${urls.map((url) => `"image_url":{"url":${url}}`).join()}}]}]`;
    assert.ok(refuses(messages(GOOD, BAD)));
    assert.throws(() => checkText(messages(BAD, GOOD)), { code: 'duplicate_member' });
  });

  it('refuses with 413 a message with a URL that holds too much to be looked at in one go', () => {
    const many = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}":1`).join();
    const message = (count: number) => `[{"content":[{"image_url":${BAD},${many(count)}}]}]`;
    assert.ok(refuses(message(19_000)));
    assert.throws(() => checkText(message(20_001)), { code: 'body_too_large', status: 413 });
    const deep = `${'['.repeat(70)}${']'.repeat(70)}`;
    assert.throws(() => checkText(`[{"image_url":${GOOD},"x":${deep}}]`), { code: 'body_too_large' });
    checkText(`[{"image":${GOOD},"x":${deep}}]`);
  });

  it('lets others have a turn after each 512 KiB of a look, and after each message that is parsed', async () => {
    const filled = 'A'.repeat(1 << 20);
    const parts = [1, 2, 3, 4].map(() => `{"content":[{"image_url":"data:image/png;base64,${filled}"}]}`);
    let turns = 0;
    const pause = (): undefined => {
      turns += 1;
    };
    await jsonBody({ salted: true })(Buffer.from(`{"model":"m","messages":[${parts}]}`), { pause });
    assert.equal(turns, 8 + 8 + parts.length);
  });

  it('gives the same verdict as Go, in any spelling of the URL', () => {
    assert.match(go.go, /^go1\.26/);
    assert.ok(go.accepted.length > 300 && go.refused.length > 300);
    assert.ok(go.accepted.some(hasControl), 'a control character in a fragment');
    for (const [urls, bad] of [
      [goodUrls, false],
      [badUrls, true],
    ] as const) {
      for (const url of urls) {
        assert.equal(isAcceptedImageUrl(url), !bad, `simulator: ${JSON.stringify(url)}`);
        assert.equal(refuses(imagesText(JSON.stringify(url))), bad, JSON.stringify(url));
        assert.equal(refuses(imagesText(spelled(url, 1))), bad, `escaped: ${JSON.stringify(url)}`);
        assert.equal(refuses(imagesText(spelled(url, 3))), bad, `mixed: ${JSON.stringify(url)}`);
      }
    }
  });
});
