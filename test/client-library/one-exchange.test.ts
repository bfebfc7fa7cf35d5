/**
 * One exchange of the library with a service that does what the test scripts: what is sent, how often, and
 * what remains.
 */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Agent } from 'undici';
import { createPrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { forward } from '../../lib/client-library/forward.ts';
import type { PrivatemodeOptions } from '../../lib/client-library/options.ts';
import { ownOptions, readOptions } from '../../lib/client-library/read-options.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { EPOCH, fakeSession, NEXT_EPOCH } from '../support/doors/gateway.ts';
import { clientOptions, fetchThrough } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import {
  type Script,
  type ScriptedUpstream,
  startScriptedUpstream,
} from '../support/remote/scripted-upstream.ts';
import { http, sealedAnswers } from '../support/remote/sealed-answers.ts';
import { withSimulator } from '../support/remote/simulator.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const CHAT = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hello' }] });
const STREAMED = JSON.stringify({ ...JSON.parse(CHAT), stream: true });
const PLAIN = 'Content-Type: application/json\r\nPrivatemode-Encrypted: false\r\n';
const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
const FORM = '/unstructured/general/v0/general';

/** Answers with these bytes once the request is complete. */
const answers =
  (text: string): Script =>
  async ({ body, write }) => {
    await body();
    await write(text);
  };
const silent: Script = () => {};

describe('a request through the client library', { timeout: 600_000 }, () => {
  let upstream: ScriptedUpstream;
  let network: Agent;
  beforeEach(async () => {
    upstream = await startScriptedUpstream();
    network = new Agent({ connect: { ca: upstream.ca } });
  });
  afterEach(async () => {
    await network.destroy();
    await upstream.close();
  });

  /**
   * Asks for a chat, or what `init` says, of a service that follows this script. `firefox`: the request has
   * no `body`, as in that browser.
   */
  function ask(
    script: Script,
    init: RequestInit & { path?: string; firefox?: boolean } = {},
    options: PrivatemodeOptions = {},
    overrides: Parameters<typeof fakeSession>[0] = {},
  ) {
    upstream.on(script);
    const apiEndpoint = `https://localhost:${upstream.port}`;
    const config = readOptions(
      ownOptions({ apiKey: CANARY_KEY, apiEndpoint, fetch: fetchThrough(network), ...options }),
    );
    const { path = '/v1/chat/completions', firefox = false, ...given } = init;
    const headers = { 'content-type': 'application/json', ...given.headers };
    const request = new Request(`http://library.invalid${path}`, {
      ...{ method: 'POST', body: CHAT, ...given },
      headers,
    });
    if (firefox) Object.defineProperty(request, 'body', { value: undefined });
    const session = fakeSession(overrides);
    return forward(config, () => session, request, 'sdk_of-the-test');
  }

  const codeOf = async (response: Response): Promise<string> =>
    ((await response.json()) as { error: { code: string } }).error.code;

  it('is not retried if the body of an unencrypted 500 breaks off, since a response had begun', async () => {
    const response = await ask(async ({ body, write, reset }) => {
      await body();
      await write(`HTTP/1.1 500 No\r\n${PLAIN}Content-Length: 100\r\n\r\n{"error`);
      reset();
    });
    assert.equal(await codeOf(response), 'stream_unfinished');
    assert.equal(upstream.requests.length, 1);
  });

  it('fails with response_malformed if its body comes in more than 10,000 chunks of a few bytes', async () => {
    const head = `HTTP/1.1 400 No\r\n${PLAIN}Transfer-Encoding: chunked\r\n\r\n`;
    const response = await ask(answers(`${head}${'1\r\nx\r\n'.repeat(10_001)}0\r\n\r\n`));
    assert.equal(await codeOf(response), 'response_malformed');
  });

  it('fails with response_too_large if an unencrypted error is longer than 1 MiB', async () => {
    const long = 'x'.repeat(1024 * 1024 + 1);
    const response = await ask(
      answers(`HTTP/1.1 400 No\r\n${PLAIN}Content-Length: ${long.length}\r\n\r\n${long}`),
    );
    assert.equal(await codeOf(response), 'response_too_large');
  });

  it('fails with response_not_encrypted if a success is not encrypted', async () => {
    const response = await ask(answers(`HTTP/1.1 200 OK\r\n${PLAIN}Content-Length: 13\r\n\r\n{"id":"mine"}`));
    assert.deepEqual([response.status, await codeOf(response)], [502, 'response_not_encrypted']);
  });

  it('fails, and shows nothing, if a success does not authenticate', async () => {
    const forged = '{"id":"x","choices":"0123"}';
    const head = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${forged.length}\r\n\r\n`;
    const response = await ask(answers(head + forged));
    assert.deepEqual([response.status, await codeOf(response)], [502, 'response_not_authentic']);
  });

  it('is sent once more after a reset, and then fails with upstream_reset', async () => {
    const response = await ask(async ({ body, reset }) => {
      await body();
      reset();
    });
    assert.equal(await codeOf(response), 'upstream_reset');
    assert.equal(upstream.requests.length, 2, 'asked once more, and once only');
  });

  /** A body that begins and never ends; `cancelled` resolves with the reason of its end. */
  function endless() {
    const { promise: cancelled, resolve } = Promise.withResolvers<unknown>();
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(Buffer.from('{')),
      cancel(reason) {
        resolve(reason);
        throw new Error('the body cannot be cancelled');
      },
    });
    return { init: { method: 'POST', body, duplex: 'half' } as RequestInit, cancelled };
  }

  for (const [what, more, status, code] of [
    ['its path', { path: '/no-endpoint' }, 404, 'unknown_path'],
    ['its encoding', { headers: { 'content-encoding': 'gzip' } }, 415, 'unsupported_encoding'],
    ['the service', {}, 400, 'attestation_failed'],
  ] as const)
    it(`cancels a streamed body if it is refused for ${what}, and sends nothing`, async () => {
      const { init, cancelled } = endless();
      const acquire = () => Promise.reject(new PrivatemodeError('attestation_failed', 'refused'));
      const response = await ask(silent, { ...init, ...more }, {}, what === 'the service' ? { acquire } : {});
      assert.deepEqual([response.status, await codeOf(response)], [status, code]);
      assert.equal(((await cancelled) as PrivatemodeError).code, code);
      assert.equal(upstream.requests.length, 0);
    });

  for (const firefox of [false, true])
    it(`rejects with the reason of the application while it reads a body${firefox ? ' in Firefox' : ', and cancels it'}`, async () => {
      const { init, cancelled } = endless();
      const abort = new AbortController();
      const asked = ask(silent, { ...init, firefox, signal: abort.signal });
      const reason = new Error('enough');
      abort.abort(reason);
      await assert.rejects(asked, (thrown) => thrown === reason);
      if (!firefox) assert.equal(await cancelled, reason);
    });

  it('has its whole body where a Request has no `body`, as in Firefox', async () => {
    const init = { path: FORM, method: 'POST', body: 'a document'.repeat(9) };
    const sizes: unknown[] = [];
    for (const firefox of [false, true]) {
      await ask(answers(`HTTP/1.1 429 No\r\n${PLAIN}Content-Length: 2\r\n\r\n{}`), { ...init, firefox });
      sizes.push(upstream.requests.at(-1)?.body.length);
    }
    assert.ok((sizes[0] as number) > 80 && sizes[1] === sizes[0], `${sizes}`);
  });

  /** A body that fails with this error when it is read. */
  const failing = (error: unknown): RequestInit => ({
    method: 'POST',
    body: new ReadableStream({ pull: (controller) => controller.error(error) }),
    duplex: 'half',
  });

  for (const path of ['/v1/chat/completions', '/v1/messages/count_tokens'])
    it(`rejects with the error of its own body if the body fails: ${path}`, async () => {
      const error = Object.assign(new Error('ENOENT: no such file'), { code: 'ENOENT' });
      for (const firefox of [false, true])
        await assert.rejects(ask(silent, { ...failing(error), path, firefox }), (thrown) => thrown === error);
      assert.equal(upstream.requests.length, 0);
    });

  it('leaves no unhandled rejection if it was aborted before it begins, and its body failed', async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown): number => unhandled.push(reason);
    process.prependListener('unhandledRejection', note);
    const reason = new Error('enough');
    const init = { ...failing(new Error('the file was closed')), signal: AbortSignal.abort(reason) };
    await assert.rejects(ask(silent, init), (thrown) => thrown === reason);
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', note);
    assert.deepEqual(unhandled, []);
  });

  it('rejects with a TypeError if its body is a stream of strings, and cancels the stream', async () => {
    const { promise: cancelled, resolve } = Promise.withResolvers<unknown>();
    const body = new ReadableStream({ pull: (controller) => controller.enqueue(CHAT), cancel: resolve });
    const asked = ask(silent, { method: 'POST', body, duplex: 'half' });
    const error = (await asked.catch((thrown: unknown) => thrown)) as Error;
    assert.ok(error instanceof TypeError && /no Uint8Array/.test(error.message), String(error));
    assert.equal(await cancelled, error);
  });

  it('is sent as its body was when the library read it, if the application then changes the memory', async () => {
    const half = 4_096;
    const [letters, buffer] = [['A', 'B'], Buffer.alloc(half)];
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          const letter = letters.shift();
          if (letter === undefined) controller.close();
          else controller.enqueue(buffer.fill(letter));
        },
      },
      { highWaterMark: 0 },
    );
    await withSimulator({}, async (simulator) => {
      const { network: below, ...options } = clientOptions(simulator);
      const client = createPrivatemodeFetch(options);
      const headers = { 'content-type': 'application/octet-stream' };
      const init: RequestInit & { duplex: 'half' } = { method: 'POST', body, duplex: 'half', headers };
      assert.equal((await client(FORM, init)).status, 200);
      assert.equal(simulator.exchanges.last()?.opened, `${'A'.repeat(half)}${'B'.repeat(half)}`);
      client.close();
      await below.destroy();
    });
  });

  it('is sent by a fetch that is no method, such as window.fetch, without redirects, cookies and referrer', async () => {
    let seen: unknown = 'not called';
    function fetch(this: unknown, _url: unknown, init: RequestInit = {}): Promise<Response> {
      seen = [this, init.redirect, init.credentials, init.referrerPolicy];
      const headers = { 'privatemode-encrypted': 'false' };
      return Promise.resolve(new Response('{}', { status: 429, headers }));
    }
    assert.equal((await ask(silent, {}, { fetch })).status, 429);
    assert.deepEqual(seen, [undefined, 'manual', 'omit', 'no-referrer']);
  });

  it('fails with stream_idle_timeout also if the given fetch obeys no signal', async () => {
    const endless = new Response(new ReadableStream(), { status: 400 });
    const fetch = (): Promise<Response> => Promise.resolve(endless);
    assert.equal(
      await codeOf(await ask(silent, {}, { fetch, streamIdleTimeout: 50 })),
      'stream_idle_timeout',
    );
  });

  it("says that the runtime stopped waiting if it ends a wait sooner than the library's options", async () => {
    const impatient = new Agent({ connect: { ca: upstream.ca }, headersTimeout: 1 });
    const told = /runtime stopped waiting.* Set the option fetch to one that waits longer/;
    const late = await ask(silent, {}, { fetch: fetchThrough(impatient) });
    assert.deepEqual([late.status, late.headers.get('x-should-retry')], [504, 'false']);
    const { error } = (await late.json()) as { error: { code: string; message: string } };
    assert.equal(error.code, 'first_byte_timeout');
    assert.match(error.message, told);
    await impatient.destroy();

    const lost = Object.assign(new Error(), { code: 'UND_ERR_BODY_TIMEOUT' });
    const body = new ReadableStream({ pull: (to) => to.error(new TypeError('terminated', { cause: lost })) });
    const begun = new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    const fetch = (): Promise<Response> => Promise.resolve(begun);
    const reader = (await ask(silent, { body: STREAMED }, { fetch })).body?.getReader();
    const event = Buffer.from((await reader?.read())?.value ?? []).toString();
    assert.match(event, /"stream_idle_timeout"/);
    await assert.rejects(Promise.resolve(reader?.read()), { code: 'stream_idle_timeout' });
  });

  for (const [what, header] of [
    ['compressed', `${PLAIN}Content-Encoding: gzip\r\n`],
    ['an event stream in clear', 'Content-Type: text/event-stream\r\n'],
  ] as const)
    it(`keeps the status and the Retry-After of an error that is ${what}, but not its text`, async () => {
      const head = `HTTP/1.1 429 No\r\n${header}Retry-After: 7\r\nX-RateLimit-Limit: 9\r\nServer: x\r\n`;
      const response = await ask(answers(`${head}Content-Length: 8\r\n\r\ndata: 1\n`), { body: STREAMED });
      const passed = ['retry-after', 'x-ratelimit-limit', 'server'].map((name) => response.headers.get(name));
      assert.deepEqual([response.status, ...passed], [429, '7', '9', null]);
      const text = await response.text();
      assert.ok(text.includes('response_malformed') && !text.includes('data: 1'), text);
      assert.equal(upstream.requests[0]?.headers['accept-encoding'], 'identity');
    });

  it('fails with client_too_old if an error asks for a newer client, marked as plain or not', async () => {
    const text = 'minimum client version v1.46';
    for (const mark of [PLAIN, '']) {
      const response = await ask(answers(`HTTP/1.1 403 No\r\n${mark}Content-Length: 28\r\n\r\n${text}`));
      assert.deepEqual([response.status, await codeOf(response)], [400, 'client_too_old']);
    }
  });

  it('renews the secret if a 500 denies it without the mark of a plain error, and is tried once more', async () => {
    const rejected: string[] = [];
    const text = '{"error":"no secret for ID x"}';
    const renewAfterDenial = (secretId: string) => {
      rejected.push(secretId);
      return Promise.resolve(NEXT_EPOCH);
    };
    const denial = answers(`HTTP/1.1 500 No\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
    const response = await ask(denial, {}, {}, { renewAfterDenial });
    assert.deepEqual([response.status, await codeOf(response)], [503, 'secret_denied']);
    assert.deepEqual([rejected, upstream.requests.length], [[EPOCH.secretId], 2]);
  });

  it('gets a sealed error of status 500 whole, which proves that the service knows a denied secret', async () => {
    const proved: string[] = [];
    const denied = { current: () => undefined, authenticated: (secretId: string) => proved.push(secretId) };
    const sealed: Script = async ({ body, write }) => {
      const answer = sealedAnswers(await body(), PLAIN_MEMBERS.R).object({
        error: { message: 'no secret for ID' },
      });
      await write(http(500, answer));
    };
    for (const session of [{}, denied]) {
      const response = await ask(sealed, {}, {}, session);
      assert.equal(response.status, 500);
      assert.deepEqual(await response.json(), { error: { message: 'no secret for ID' } });
    }
    assert.deepEqual([proved, upstream.requests.length], [[EPOCH.secretId], 2]);
    await ask(answers(`HTTP/1.1 400 No\r\n${PLAIN}Content-Length: 2\r\n\r\n{}`), {}, {}, denied);
    assert.equal(proved.length, 1, 'a plain error proves nothing');
  });

  /** A stream of which only the head comes, and whether its connection is closed. */
  function openStream(): { readonly script: Script; isClosed: boolean } {
    const stream = {
      isClosed: false,
      script: async (scripted: Parameters<Script>[0]) => {
        void scripted.closed.then(() => {
          stream.isClosed = true;
        });
        await scripted.body();
        await scripted.write(STREAM_HEAD);
      },
    };
    return stream;
  }

  it('ends with the abort reason of the application, even after the Request object was garbage-collected', async () => {
    const abort = new AbortController();
    const stream = openStream();
    const response = await ask(stream.script, { body: STREAMED, signal: abort.signal });
    for (let turn = 0; turn < 5; turn++) {
      collectGarbage();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const reason = new Error('enough');
    const read = assert.rejects(response.text(), (thrown) => thrown === reason); // and no error event comes
    abort.abort(reason);
    await eventually('the end of the connection', () => stream.isClosed);
    await read;
  });

  it('ends its connection with the abort reason of the application while it waits for an answer', async () => {
    const abort = new AbortController();
    const waiting = ask(async ({ body }) => void (await body()), { signal: abort.signal });
    await eventually('the request', () => upstream.requests[0]?.complete);
    const reason = new Error('enough');
    abort.abort(reason);
    await assert.rejects(waiting, (thrown) => thrown === reason);
    await eventually('the end of the connection', () => upstream.connections.open === 0);
  });

  it('ends its connection if its response is cancelled', async () => {
    const stream = openStream();
    const response = await ask(stream.script, { body: STREAMED });
    const reader = response.body!.getReader();
    void reader.read();
    await reader.cancel();
    await eventually('the end of the connection', () => stream.isClosed);
  });

  it('ends its connection if its response is garbage-collected, and nobody has read it', async () => {
    const stream = openStream();
    await ask(stream.script, { body: STREAMED });
    await eventually('the end of the connection', () => {
      collectGarbage();
      return stream.isClosed;
    });
  });
});
