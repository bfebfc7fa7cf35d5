import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { inspect } from 'node:util';
import { SecretKey } from '#crypto';
import { newCanaries, writtenForms } from '../support/doors/canaries.ts';
import { assertClean, atRest } from '../support/doors/invariants.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const CANARIES = newCanaries();
const { prompt: P, key: K } = CANARIES;
const JSON_TYPE = { 'content-type': 'application/json' };

interface Attempt {
  readonly what: string;
  readonly path: string;
  readonly init: RequestInit;
  /** Status; 0: the connection broke. */
  readonly status: number;
}

const post = (body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: 'POST',
  headers: { ...JSON_TYPE, ...headers },
  body: typeof body === 'string' ? body : JSON.stringify(body),
});

const chat = (model: string, extra: object = {}) => ({
  model,
  messages: [{ role: 'user', content: `${P} and more ${P}` }],
  ...extra,
});

function form(...fields: (readonly [string, string | Blob])[]): RequestInit {
  const body = new FormData();
  for (const [name, value] of fields) body.append(name, value);
  return { method: 'POST', body };
}

const CHAT = '/v1/chat/completions';

/** What programs and networks add of the user. */
const TELLING = {
  cookie: P,
  'user-agent': P,
  'x-forwarded-for': P,
  referer: P,
  'x-session-id': P,
  'x-stainless-os': P,
  'privatemode-shard-key': P,
};

const good = (what: string, init: RequestInit, path = CHAT): Attempt => ({ what, path, init, status: 200 });
const bad = (what: string, init: RequestInit, status = 400, path = CHAT): Attempt => ({
  ...{ what, path, init, status },
});

const TOOLS = [{ type: 'function', function: { name: 'f', description: P } }];
const FILE_IMAGE = [{ type: 'image_url', image_url: { url: `file:///${P}` } }];
const ANTHROPIC = { 'x-api-key': K, 'anthropic-version': '2023-06-01' };
const SPEECH = form(['model', 'sim'], ['prompt', P], ['file', new Blob([P])]);
const TRANSCRIPTIONS = '/v1/audio/transcriptions';

const GOOD: readonly Attempt[] = [
  good('a chat', post(chat('sim-echo'))),
  good('a stream', post(chat('sim-echo', { stream: true }))),
  good('tools and images', post(chat('sim-tools', { tools: TOOLS }))),
  good('a completion', post({ model: 'sim-echo', prompt: P }), '/v1/completions'),
  good('a message', post(chat('sim-echo', { max_tokens: 9, system: P }), ANTHROPIC), '/v1/messages'),
  good('embeddings', post({ model: 'sim', input: P }), '/v1/embeddings'),
  good('a transcription', SPEECH, TRANSCRIPTIONS),
  good('a document', form(['files', new Blob([P])]), '/unstructured/general'),
  good('the models', { headers: { cookie: `session=${P}` } }, '/v1/models'),
  good('headers that tell who asks', post(chat('sim-echo'), TELLING)),
  good('a lost secret', post(chat('sim-echo+fault-once=no_secret'))),
];

const BAD: readonly Attempt[] = [
  bad('no JSON', post(`{"model":"m","messages":"${P}`)),
  bad('text after the JSON', post(`{"model":"m"} ${P}`)),
  bad('a repeated member', post(`{"model":"m","${P}":1,"${P}":2}`)),
  bad('a member no service can address', post({ model: 'm', [`${P}|x`]: P })),
  bad('a short salt', post(chat('m', { cache_salt: P.slice(0, 20) }))),
  bad('no model', post({ messages: P })),
  bad('a model that is none', post(chat(`m\n${P}`))),
  bad(
    'media of a scheme that is refused',
    post({ model: 'm', messages: [{ role: 'user', content: FILE_IMAGE }] }),
  ),
  bad('a repeated field', form(['model', 'sim'], [P, P], [P, P]), 400, TRANSCRIPTIONS),
  bad(
    'a broken form',
    post(P, { 'content-type': `multipart/form-data; boundary=${P}` }),
    400,
    TRANSCRIPTIONS,
  ),
  bad('an unknown path', {}, 404, `/v1/${P}`),
  bad('a path with a backslash', post(P), 400, `/unstructured/%5c${P}`),
  bad('a page of another origin', post(chat('m'), { origin: 'https://evil.example' }), 403), // is logged
  bad('an origin that no browser writes', post(chat('m'), { origin: `https://evil.example/${P}` }), 403),
  bad('an encoded body', post(P, { 'content-encoding': P }), 415),
  bad('a large body', post(chat('m', { padding: P.repeat(5_000) })), 413),
  bad('an error of the model', post(chat('sim-error-422')), 422),
  bad('an error of the service', post(chat('sim-echo+fault=status:500')), 500),
  bad('a forged answer', post(chat('sim-echo+fault=flip_tag')), 502),
  bad('a broken stream', post(chat('sim-echo+fault=flip_tag', { stream: true })), 0),
];

/** What an answer shows beside the answer itself. */
async function shownBy(stack: Stack, { path, init, status }: Attempt): Promise<string[]> {
  const response = await fetch(`${stack.url}${path}`, init);
  const headers = JSON.stringify([...response.headers.entries()]);
  const body = await response.text().catch(() => undefined);
  assert.equal(body === undefined ? 0 : response.status, status, body ?? 'broken');
  // A good answer is the client's own; all else are our words.
  return status === 200 ? [headers] : [headers, body ?? ''];
}

/** The secrets of a deployment, as they might be written down. */
const secretsOf = ({ simulator }: Stack): string[] =>
  simulator.secrets.ids().flatMap((id) => {
    const bytes = Buffer.from(simulator.secrets.lookup(id) ?? []);
    assert.equal(bytes.length, 32);
    return (['hex', 'base64', 'base64url', 'latin1'] as const).map((encoding) => bytes.toString(encoding));
  });

describe('prompt, key and secret', () => {
  const temporary = process.env['TMPDIR'];
  const directory = temporaryDirectory('privatemode-hygiene-');
  let stack: Stack;
  before(async () => {
    process.env['TMPDIR'] = directory;
    stack = await startStack({
      apiKey: K,
      flags: ['--max-body-bytes=100000', '--admin-address=127.0.0.1:0'],
    });
  });
  after(async () => {
    await stack.close();
    if (temporary === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = temporary;
  });

  for (const attempt of [...GOOD, ...BAD]) {
    it(`are in no output, log line or file after ${attempt.what}`, async () => {
      const shown = await shownBy(stack, attempt);
      await atRest(stack);
      const forbidden = [...writtenForms(P), ...writtenForms(K), ...secretsOf(stack)];
      for (const text of [...shown, ...stack.logLines]) {
        for (const secret of forbidden)
          assert.ok(!text.includes(secret), `${attempt.what}: ${text.slice(0, 200)}`);
      }
      assertClean(directory, forbidden);
      assert.equal(stack.simulator.recorder.containing(P).length, 0, 'plaintext on the wire');
      assert.deepEqual(stack.simulator.exchanges.violations(), [], 'rules of the wire');
    });
  }

  it('are not shown by the session, which keeps the secret in a key object', () => {
    const epoch = stack.proxy.session.current();
    assert.ok(epoch?.key instanceof SecretKey);
    const shown = [inspect(epoch, { depth: 9, showHidden: true }), JSON.stringify(epoch), String(epoch.key)];
    for (const text of shown) for (const secret of secretsOf(stack)) assert.ok(!text.includes(secret));
  });
});
