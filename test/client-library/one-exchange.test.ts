/**
 * One exchange of the library with a service that does what the test scripts: what is sent, how often, and
 * what remains.
 */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Agent, fetch as undiciFetch } from 'undici';
import { createPrivatemodeFetch } from '../../lib/client-library/fetch.ts';
import { forward } from '../../lib/client-library/forward.ts';
import { type PrivatemodeOptions, readOptions } from '../../lib/client-library/options.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { EPOCH, fakeSession, NEXT_EPOCH } from '../support/doors/gateway.ts';
import { clientOptions } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';
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

/** Answers with these bytes once the request is complete. */
const answers =
  (text: string): Script =>
  async ({ body, write }) => {
    await body();
    await write(text);
  };

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
    const config = readOptions({
      apiKey: CANARY_KEY,
      apiEndpoint: `https://localhost:${upstream.port}`,
      fetch: ((input, rest) =>
        undiciFetch(input as URL, { ...(rest as object), dispatcher: network })) as typeof fetch,
      ...options,
    });
    const { path = '/v1/chat/completions', firefox = false, ...given } = init;
    const headers = { 'content-type': 'application/json', ...given.headers };
    const request = new Request(`http://library.invalid${path}`, {
      ...(given.method === undefined ? { method: 'POST', body: CHAT } : {}),
      ...given,
      headers,
    });
    if (firefox) Object.defineProperty(request, 'body', { value: undefined });
    const session = fakeSession(overrides);
    return forward({ config, session: () => session }, request, 'sdk_of-the-test');
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

  it('fails if the unencrypted body of an error pauses for longer than streamIdleTimeout', async () => {
    const begins = (status: number): Script =>
      answers(`HTTP/1.1 ${status} No\r\n${PLAIN}Content-Length: 100\r\n\r\n{`);
    assert.equal(await codeOf(await ask(begins(500), {}, { streamIdleTimeout: 50 })), 'stream_idle_timeout');
    const response = await ask(begins(429), {}, { streamIdleTimeout: 50 });
    await assert.rejects(response.text(), /stopped sending/);
  });

  it('fails with response_not_encrypted if a success is not encrypted', async () => {
    const response = await ask(answers(`HTTP/1.1 200 OK\r\n${PLAIN}Content-Length: 13\r\n\r\n{"id":"mine"}`));
    assert.equal(response.status, 502);
    assert.equal(await codeOf(response), 'response_not_encrypted');
  });

  it('is sent once more after a reset, 50 ms later, and then fails with upstream_reset', async () => {
    const at: number[] = [];
    const response = await ask(async ({ body, reset }) => {
      await body();
      at.push(performance.now());
      reset();
    });
    assert.equal(await codeOf(response), 'upstream_reset');
    assert.equal(at.length, 2, 'asked once more, and once only');
    assert.ok((at[1] as number) - (at[0] as number) >= 45, `after ${at}`);
  });

  it('fails with 504 if the service does not begin to answer within firstByteTimeout', async () => {
    const response = await ask(() => {}, {}, { firstByteTimeout: 50 });
    assert.equal(response.status, 504);
    assert.equal(await codeOf(response), 'first_byte_timeout');
  });

  function block(ms: number): void {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  }

  it('is answered if the event loop was blocked when the answer came, beyond firstByteTimeout', async () => {
    const answered: Script = async ({ body, write }) => {
      await body();
      void write(`HTTP/1.1 429 No\r\n${PLAIN}Content-Length: 2\r\n\r\n{}`);
      block(1_800);
    };
    const response = await ask(answered, {}, { firstByteTimeout: 1_500 });
    assert.deepEqual([response.status, await response.text()], [429, '{}']);
  });

  it('gets its whole answer if the event loop was blocked when the rest came, beyond streamIdleTimeout', async () => {
    let write: ((text: string) => unknown) | undefined;
    const begun: Script = (scripted) => {
      ({ write } = scripted);
      return scripted.write(
        'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{',
      );
    };
    const init = { method: 'GET', path: '/v1/models' };
    const reader = (await ask(begun, init, { streamIdleTimeout: 500 })).body?.getReader();
    await reader?.read();
    const rest = reader?.read();
    await new Promise((resolve) => setImmediate(resolve));
    write?.('}');
    block(700);
    assert.equal(Buffer.from((await rest)?.value ?? []).toString(), '}');
  });

  it('with a compressed body is refused with 415, and nothing is sent', async () => {
    const response = await ask(() => {}, {
      method: 'POST',
      body: CHAT,
      headers: { 'content-encoding': 'gzip' },
    });
    assert.equal(response.status, 415);
    assert.equal(await codeOf(response), 'unsupported_encoding');
    assert.equal(upstream.requests.length, 0);
  });

  /** A body that begins with this text and never ends; `cancelled` resolves with the reason of its end. */
  function endless(text: string) {
    const { promise: cancelled, resolve } = Promise.withResolvers<unknown>();
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(Buffer.from(text)),
      cancel(reason) {
        resolve(reason);
        throw new Error('the body cannot be cancelled');
      },
    });
    return { init: { method: 'POST', body, duplex: 'half' } as RequestInit, cancelled };
  }

  for (const [what, text, more, code] of [
    ['its path', '', { path: '/no-endpoint' }, 'unknown_path'],
    ['its encoding', '', { headers: { 'content-encoding': 'gzip' } }, 'unsupported_encoding'],
  ] as const) {
    it(`cancels a streamed body if it is refused for ${what}`, async () => {
      const { init, cancelled } = endless(text);
      const response = await ask(() => {}, { ...init, ...more });
      assert.ok(JSON.stringify(await response.json()).includes(code));
      assert.equal(((await cancelled) as PrivatemodeError).code, code);
    });
  }

  it('cancels a streamed body if the application aborts, with its reason', async () => {
    const { init, cancelled } = endless('{');
    const abort = new AbortController();
    const asked = ask(() => {}, { ...init, signal: abort.signal });
    const reason = new Error('enough');
    abort.abort(reason);
    await assert.rejects(asked, (thrown) => thrown === reason);
    assert.equal(await cancelled, reason);
  });

  it('has its whole body where a Request has no `body`, as in Firefox', async () => {
    const document = {
      path: '/unstructured/general/v0/general',
      method: 'POST',
      body: 'a document'.repeat(9),
    };
    for (const init of [{}, document]) {
      const sizes: unknown[] = [];
      for (const firefox of [false, true]) {
        await ask(answers(`HTTP/1.1 429 No\r\n${PLAIN}Content-Length: 2\r\n\r\n{}`), { ...init, firefox });
        sizes.push(upstream.requests.at(-1)?.body.length);
      }
      assert.ok((sizes[0] as number) > 80, `${sizes}`);
      assert.equal(sizes[1], sizes[0]);
    }
    const counted = { path: '/v1/messages/count_tokens', method: 'POST', body: CHAT };
    const [there, here] = await Promise.all(
      [false, true].map(async (firefox) => (await ask(() => {}, { ...counted, firefox })).json()),
    );
    assert.deepEqual(here, there);
  });

  it('ends with the abort reason of the application while it reads a body where a Request has no `body`', async () => {
    const { init } = endless('{');
    const abort = new AbortController();
    const asked = ask(() => {}, { ...init, firefox: true, signal: abort.signal });
    const reason = new Error('enough');
    abort.abort(reason);
    await assert.rejects(asked, (thrown) => thrown === reason);
  });

  /** A body that fails with this error when it is read. */
  const failing = (error: unknown): RequestInit => ({
    method: 'POST',
    body: new ReadableStream({ pull: (controller) => controller.error(error) }),
    duplex: 'half',
  });

  for (const path of ['/v1/chat/completions', '/v1/messages/count_tokens']) {
    for (const firefox of [false, true]) {
      const where = `${path}${firefox ? ' in Firefox' : ''}`;
      it(`rejects with the error of its own body if the body fails: ${where}`, async () => {
        const error = Object.assign(new Error('ENOENT: no such file'), { code: 'ENOENT' });
        await assert.rejects(
          ask(() => {}, { ...failing(error), path, firefox }),
          (thrown) => thrown === error,
        );
        assert.equal(upstream.requests.length, 0);
      });
    }
  }

  it('rejects with a TypeError if its body is a stream of strings, and cancels the stream', async () => {
    const { promise: cancelled, resolve } = Promise.withResolvers<unknown>();
    const body = new ReadableStream({ pull: (controller) => controller.enqueue(CHAT), cancel: resolve });
    const asked = ask(() => {}, { method: 'POST', body, duplex: 'half' });
    const error = (await asked.catch((thrown: unknown) => thrown)) as Error;
    assert.ok(error instanceof TypeError && /no Uint8Array/.test(error.message), String(error));
    assert.equal(await cancelled, error);
    assert.equal(upstream.requests.length, 0);
  });

  it('is sent as its body was when the library read it, if the application then changes the memory', async () => {
    const half = 4_096;
    const text = `${'A'.repeat(half)}${'B'.repeat(half)}`;
    const [letters, buffer] = [['A', 'B'], Buffer.alloc(half)];
    const stream = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          const letter = letters.shift();
          if (letter === undefined) controller.close();
          else controller.enqueue(buffer.fill(letter));
        },
      },
      { highWaterMark: 0 },
    );
    const bytes = Uint8Array.from(Buffer.from(text));
    await withSimulator({}, async (simulator) => {
      const { network: below, ...options } = clientOptions(simulator);
      const client = createPrivatemodeFetch(options);
      for (const body of [stream, bytes, bytes.slice().buffer]) {
        const init: RequestInit & { duplex: 'half' } = { method: 'POST', body, duplex: 'half' };
        const asked = client('/unstructured/general/v0/general', {
          ...init,
          headers: { 'content-type': 'application/octet-stream' },
        });
        if (body !== stream) new Uint8Array(body instanceof ArrayBuffer ? body : bytes.buffer).fill(0);
        assert.equal((await asked).status, 200);
        const { opened } = simulator.exchanges.last() ?? assert.fail('nothing came');
        assert.ok(opened === text, `${opened.length} bytes, ${opened.slice(0, 9)}`);
      }
      client.close();
      await below.destroy();
    });
  });

  it('is sent by a fetch that must not be called as a method, such as window.fetch', async () => {
    let seen: unknown = 'not called';
    function fetch(this: unknown): Promise<Response> {
      seen = this;
      return Promise.resolve(
        new Response('{}', { status: 429, headers: { 'privatemode-encrypted': 'false' } }),
      );
    }
    assert.equal((await ask(() => {}, {}, { fetch })).status, 429);
    assert.equal(seen, undefined);
  });

  it("says that the runtime stopped waiting if it ends a wait sooner than the library's options", async () => {
    const impatient = new Agent({ connect: { ca: upstream.ca }, headersTimeout: 1, bodyTimeout: 1 });
    const fetch: PrivatemodeOptions['fetch'] = (url, init) =>
      undiciFetch(url, { ...(init as object), dispatcher: impatient }) as unknown as Promise<Response>;
    const told = /runtime stopped waiting.* Set the option fetch to one that waits longer, as "Runtimes" in/;
    const silent = await ask(() => {}, {}, { fetch });
    assert.deepEqual([silent.status, silent.headers.get('x-should-retry')], [504, 'false']);
    const { error } = (await silent.json()) as { error: { code: string; message: string } };
    assert.equal(error.code, 'first_byte_timeout');
    assert.match(error.message, told);
    await impatient.destroy();

    const lost = Object.assign(new Error(), { code: 'UND_ERR_BODY_TIMEOUT' });
    const body = new ReadableStream({ pull: (to) => to.error(new TypeError('terminated', { cause: lost })) });
    const begun = new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    const paused = await ask(
      () => {},
      { method: 'POST', body: STREAMED },
      { fetch: () => Promise.resolve(begun) },
    );
    const reader = paused.body?.getReader();
    const event = Buffer.from((await reader?.read())?.value ?? []).toString();
    assert.match(event, /"stream_idle_timeout"/);
    assert.match(event.replaceAll('\\"', '"'), told);
    await assert.rejects(Promise.resolve(reader?.read()), { code: 'stream_idle_timeout' });
  });

  it('leaves no unhandled rejection if it was aborted before it begins, and its body failed', async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown): number => unhandled.push(reason);
    process.prependListener('unhandledRejection', note);
    const reason = new Error('enough');
    const init = { ...failing(new Error('the file was closed')), signal: AbortSignal.abort(reason) };
    await assert.rejects(
      ask(() => {}, init),
      (thrown) => thrown === reason,
    );
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', note);
    assert.deepEqual(unhandled, []);
  });

  it('cancels a streamed body if the service is refused before the body is complete', async () => {
    const { init, cancelled } = endless('{');
    const refused = new PrivatemodeError('attestation_failed', 'refused');
    const response = await ask(() => {}, init, {}, { acquire: () => Promise.reject(refused) });
    assert.equal(await codeOf(response), 'attestation_failed');
    assert.equal(await cancelled, refused);
  });

  it('fails with 502 if the service compresses a success although the request asked for identity', async () => {
    const head = 'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n';
    const response = await ask(answers(`${head}Content-Length: 4\r\n\r\nzip!`));
    assert.equal(response.status, 502);
    assert.equal(await codeOf(response), 'response_malformed');
    assert.equal(upstream.requests[0]?.headers['accept-encoding'], 'identity');
  });

  for (const [what, header] of [
    ['compressed', `${PLAIN}Content-Encoding: gzip\r\n`],
    ['an event stream in clear', 'Content-Type: text/event-stream\r\n'],
  ] as const) {
    it(`keeps the status and the Retry-After of an error that is ${what}, but not its text`, async () => {
      const head = `HTTP/1.1 429 No\r\n${header}Retry-After: 7\r\nX-RateLimit-Limit: 9\r\nServer: x\r\n`;
      const response = await ask(answers(`${head}Content-Length: 8\r\n\r\ndata: 1\n`), {
        method: 'POST',
        body: STREAMED,
      });
      const passed = ['retry-after', 'x-ratelimit-limit', 'server'].map((name) => response.headers.get(name));
      assert.deepEqual([response.status, ...passed], [429, '7', '9', null]);
      assert.equal(await codeOf(response), 'response_malformed');
    });
  }

  it('fails with stream_idle_timeout if an error that is not marked as plain pauses for longer', async () => {
    const head = 'HTTP/1.1 400 No\r\nContent-Length: 100\r\n';
    const response = await ask(answers(`${head}\r\n{`), {}, { streamIdleTimeout: 50 });
    assert.deepEqual([response.status, await codeOf(response)], [504, 'stream_idle_timeout']);
  });

  it('names what to do, and nothing of tampering, if an error is neither encrypted nor marked as plain', async () => {
    const said = (status: number, body: string): Promise<Response> =>
      ask(
        answers(`HTTP/1.1 ${status} No\r\nContent-Length: ${body.length}\r\nRetry-After: 7\r\n\r\n${body}`),
      );
    const limited = await said(429, '{}');
    assert.deepEqual([limited.status, limited.headers.get('retry-after')], [429, '7']);
    const { error } = (await limited.json()) as { error: { code: string; type: string; message: string } };
    assert.deepEqual([error.code, error.type], ['response_malformed', 'rate_limit_error']);
    assert.match(
      error.message,
      /not shown\. Wait as long as Retry-After says, or a minute, then try again\. \(/,
    );
    const tooOld = await said(400, 'minimum client version v1.46');
    assert.deepEqual([tooOld.status, await codeOf(tooOld)], [400, 'client_too_old']);
  });

  it('renews the secret if a 500 denies it without the mark of a plain error, and is tried once more', async () => {
    const rejected: string[] = [];
    const text = '{"error":"no secret for ID x"}';
    const response = await ask(
      answers(`HTTP/1.1 500 No\r\nContent-Length: ${text.length}\r\n\r\n${text}`),
      {},
      {},
      {
        renewAfterDenial: (secretId) => {
          rejected.push(secretId);
          return Promise.resolve(NEXT_EPOCH);
        },
      },
    );
    assert.deepEqual([response.status, await codeOf(response)], [503, 'secret_denied']);
    assert.deepEqual([rejected, upstream.requests.length], [[EPOCH.secretId], 2]);
  });

  it('gets a sealed error of status 500 whole', async () => {
    const response = await ask(async ({ body, write }) => {
      const sealed = sealedAnswers(await body(), PLAIN_MEMBERS.R);
      await write(http(500, sealed.object({ error: { message: 'no secret for ID' } })));
    });
    assert.deepEqual([response.status, upstream.requests.length], [500, 1]);
    const { error } = (await response.json()) as { error: { message: string } };
    assert.equal(error.message, 'no secret for ID');
  });

  it('names CORS if a page does not see whether the service marked an error as plain', async (t) => {
    Object.assign(globalThis, { location: { origin: 'https://page.example' } });
    t.after(() => Reflect.deleteProperty(globalThis, 'location'));
    const denied = await ask(answers('HTTP/1.1 500 No\r\nContent-Length: 21\r\n\r\n{"error":"STRANGERS"}'));
    const { error } = (await denied.json()) as { error: { code: string; message: string } };
    assert.deepEqual([denied.status, error.code], [500, 'response_malformed']);
    assert.match(
      error.message,
      /in a header that pages of https:\/\/page\.example do not see \(CORS\)\. Try again/,
    );
    assert.match(
      error.message,
      /expose the header Privatemode-Encrypted to pages, as "Runtimes" in the README/,
    );
    assert.ok(!error.message.includes('STRANGERS'));
  });

  it('is refused if its path has a prefix such as /openai, and the error lists the endpoints', async () => {
    const wrong = (path: string) => ask(() => {}, { method: 'POST', body: CHAT, path });
    const text = await (await wrong('/openai/v1/chat/completions')).text();
    assert.match(
      text,
      /no such endpoint here\. Use one of these: POST \/v1\/chat\/completions,.*"unknown_path"/,
    );
    assert.equal(await codeOf(await wrong('/no-endpoint')), 'unknown_path');
    assert.equal(upstream.requests.length, 0);
  });

  it('with the method HEAD is sent as GET, and its response has no body', async () => {
    const list = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}';
    const response = await ask(answers(list), { method: 'HEAD', path: '/v1/models' });
    assert.deepEqual([response.status, await response.text()], [200, '']);
    assert.deepEqual(
      upstream.requests.map(({ method, target }) => [method, target]),
      [['GET', '/v1/models']],
    );
  });

  it('ends with the abort reason of the application, and without an error event', async () => {
    const abort = new AbortController();
    const response = await ask(
      answers('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n'),
      { method: 'POST', body: STREAMED, signal: abort.signal },
    );
    const read = assert.rejects(response.text(), (thrown) => thrown === reason);
    const reason = new Error('enough');
    abort.abort(reason);
    await read;
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
        await scripted.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
        );
      },
    };
    return stream;
  }

  it('ends when the application aborts, even after the Request object was garbage-collected', async () => {
    const abort = new AbortController();
    const stream = openStream();
    const response = await ask(stream.script, { method: 'POST', body: STREAMED, signal: abort.signal });
    for (let turn = 0; turn < 5; turn++) {
      collectGarbage();
      await new Promise((resolve) => setImmediate(resolve));
    }
    abort.abort();
    await eventually('the end of the connection', () => stream.isClosed);
    await assert.rejects(response.text());
  });

  it('ends its connection if its response is garbage-collected, and nobody has read it', async () => {
    const stream = openStream();
    await ask(stream.script, { method: 'POST', body: STREAMED });
    await eventually('the end of the connection', () => {
      collectGarbage();
      return stream.isClosed;
    });
  });
});
