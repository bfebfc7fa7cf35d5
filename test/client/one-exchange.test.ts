/** One exchange of the library with a service that does what the test scripts: what is sent, how often, and what remains. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Agent, fetch as undiciFetch } from 'undici';
import { forward } from '../../lib/client/forward.ts';
import { type PrivatemodeOptions, readOptions } from '../../lib/client/options.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  type Script,
  type ScriptedUpstream,
  startScriptedUpstream,
} from '../support/remote/scripted-upstream.ts';

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

describe('a request through the library', { timeout: 60_000 }, () => {
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

  /** Asks for a chat, or what `init` says, of a service that follows this script. */
  function ask(script: Script, init: RequestInit & { path?: string } = {}, options: PrivatemodeOptions = {}) {
    upstream.on(script);
    const config = readOptions({
      apiKey: CANARY_KEY,
      apiEndpoint: `https://localhost:${upstream.port}`,
      fetch: ((input, rest) =>
        undiciFetch(input as URL, { ...(rest as object), dispatcher: network })) as typeof fetch,
      ...options,
    });
    const { path = '/v1/chat/completions', ...given } = init;
    const headers = { 'content-type': 'application/json', ...given.headers };
    const request = new Request(`http://library.invalid${path}`, {
      ...(given.method === undefined ? { method: 'POST', body: CHAT } : {}),
      ...given,
      headers,
    });
    const session = fakeSession();
    return forward({ config, session: () => session }, request, 'sdk_of-the-test');
  }

  const codeOf = async (response: Response): Promise<string> =>
    ((await response.json()) as { error: { code: string } }).error.code;

  it('is not sent again where an unencrypted 500 breaks off: a response had begun', async () => {
    const response = await ask(async ({ body, write, reset }) => {
      await body();
      await write(`HTTP/1.1 500 No\r\n${PLAIN}Content-Length: 100\r\n\r\n{"error`);
      reset();
    });
    assert.equal(await codeOf(response), 'stream_unfinished');
    assert.equal(upstream.requests.length, 1);
  });

  it('is answered with at most 1 MiB of an unencrypted 500', async () => {
    const length = 4 * 1024 * 1024;
    const response = await ask(
      answers(`HTTP/1.1 500 No\r\n${PLAIN}Content-Length: ${length}\r\n\r\n${'x'.repeat(length)}`),
    );
    assert.equal((await response.arrayBuffer()).byteLength, 1024 * 1024);
  });

  it('fails where the unencrypted body of an error pauses for longer than streamIdleTimeout', async () => {
    const begins = (status: number): Script =>
      answers(`HTTP/1.1 ${status} No\r\n${PLAIN}Content-Length: 100\r\n\r\n{`);
    assert.equal(await codeOf(await ask(begins(500), {}, { streamIdleTimeout: 50 })), 'stream_idle_timeout');
    const response = await ask(begins(429), {}, { streamIdleTimeout: 50 });
    await assert.rejects(response.text(), /stopped sending/);
  });

  it('fails with response_not_encrypted where a success is not encrypted, and shows none of it', async () => {
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

  it('fails with 504 where the service does not begin to answer within firstByteTimeout', async () => {
    const response = await ask(() => {}, {}, { firstByteTimeout: 50 });
    assert.equal(response.status, 504);
    assert.equal(await codeOf(response), 'first_byte_timeout');
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

  it('with more in front of its path is refused, and the error says which base URL is meant', async () => {
    const wrong = (path: string) => ask(() => {}, { method: 'POST', body: CHAT, path });
    const { error } = (await (await wrong('/openai/v1/chat/completions')).json()) as {
      error: { code: string; message: string };
    };
    assert.equal(error.code, 'unknown_path');
    assert.ok(
      error.message.startsWith(
        'there is no such endpoint here: /openai/v1/chat/completions. The base URL of the client has to be ' +
          `https://localhost:${upstream.port}/v1; any host will do, since requests go to apiEndpoint. Use one of`,
      ),
      error.message,
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

  it('ends, when the application aborts, with the reason it gave and with no error event', async () => {
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

  it('ends, when the application aborts, even after its Request object was garbage-collected', async () => {
    const abort = new AbortController();
    let isClosed = false;
    const response = await ask(
      async (scripted) => {
        void scripted.closed.then(() => {
          isClosed = true;
        });
        await scripted.body();
        await scripted.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
        );
      },
      { method: 'POST', body: STREAMED, signal: abort.signal },
    );
    for (let turn = 0; turn < 5; turn++) {
      collectGarbage();
      await new Promise((resolve) => setImmediate(resolve));
    }
    abort.abort();
    await eventually('the end of the connection', () => isClosed);
    await assert.rejects(response.text());
  });
});
