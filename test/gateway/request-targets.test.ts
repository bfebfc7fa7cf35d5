/** A target that another parser reads differently would be sealed for one endpoint and delivered to another. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chatBody, codeOf, gatewayFixture, post } from '../support/gateway-fixture.ts';
import type { Script } from '../support/scripted-upstream.ts';
import { completion, openedRaw, plainError } from '../support/sealed-answers.ts';

describe('request targets', { concurrency: true }, () => {
  const refused: [name: string, target: string][] = [
    ['dot segments', '/unstructured/../v1/chat/completions'],
    ['a dot segment at the end', '/v1/chat/completions/.'],
    ['escaped dot segments', '/unstructured/%2e%2E/v1/chat/completions'],
    ['half escaped dot segments', '/unstructured/.%2e/v1/models'],
    ['escaped slashes around dots', '/unstructured/..%2fv1/chat/completions'],
    ['dot segments without /v1', '/models/../v1/chat/completions'],
    ['a backslash instead of the last slash', '/chat/completions\\'],
    ['a backslash', '/unstructured\\..\\v1\\models'],
    ['an escaped backslash', '/unstructured/%5c../x'],
    ['absolute form', 'http://localhost:8080/v1/chat/completions'],
    ['absolute form of another host', 'https://evil.example/v1/chat/completions'],
    ['absolute form that no URL parser takes', 'http://['],
    ['authority form', 'evil.example:443'],
    ['asterisk form', '*'],
    ['a scheme without slashes', 'javascript:alert(1)'],
    ['a broken escape', '/unstructured/%zz'],
    ['an escaped NUL', '/unstructured/%00'],
    ['an escaped line break', '/unstructured/a%0d%0aX: y'],
    ['a fragment', '/v1/chat/completions#x'],
  ];
  for (const [name, target] of refused) {
    it(`${name}: refused, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const answer = await ask(post(chatBody(), { path: target }));
      assert.equal(answer.status, 400);
      assert.ok(!answer.body.includes(target), 'the target was quoted');
      assert.equal(upstream.connections.total, 0);
    });
  }

  const sent: [name: string, target: string, delivered: string][] = [
    [
      'a query, whatever is in it',
      '/v1/chat/completions?a=%2e%2e/&b=\\..\\&c=http://x//y?z',
      '/v1/chat/completions',
    ],
    ['a doubled slash', '//v1//chat/completions', '/v1/chat/completions'],
    ['a doubled /v1', '/v1/v1/chat/completions?beta=true', '/v1/chat/completions'],
    ['no /v1', '/chat/completions', '/v1/chat/completions'],
    ['a slash at the end', '/v1/chat/completions/', '/v1/chat/completions'],
  ];
  for (const [name, target, delivered] of sent) {
    it(`${name}: the canonical path arrives`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assert.equal((await ask(post(chatBody(), { path: target }))).status, 200);
      assert.equal(upstream.requests[0]?.target, delivered);
    });
  }

  it('allowed parameters arrive as they were written, on both attempts', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const noSecret = plainError(500, 'no secret for ID');
    const again: Script = async (scripted) => {
      await scripted.body();
      await scripted.write(noSecret);
    };
    upstream.on(again, again);
    await ask(post(chatBody(), { path: '/v1/messages?x=1&beta=%74rue&beta=http://x//..&y' }));
    assert.deepEqual(
      upstream.requests.map(({ target }) => target),
      Array(2).fill('/v1/messages?beta=%74rue&beta=http://x//..'),
    );
  });

  it('what looks like another endpoint below /unstructured is still sealed as a whole', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: plainError(404, 'none') });
    await ask(post(chatBody(), { path: '/unstructured/v1/chat/completions' }));
    const [seen] = upstream.requests;
    assert.equal(seen?.target, '/unstructured/v1/chat/completions');
    assert.equal(openedRaw(seen?.body as Buffer).toString(), chatBody());
  });

  it('the library that forwards cannot be switched to a path of its own by the environment', async (t) => {
    process.env['FORCE_FETCH_PATH'] = 'true';
    t.after(() => {
      delete process.env['FORCE_FETCH_PATH'];
    });
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(
      async (scripted) => {
        await scripted.body();
        await scripted.write(
          'HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/models\r\nContent-Length: 0\r\n\r\n',
        );
      },
      async (scripted) => scripted.write(completion(await scripted.body())),
    );
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [502, 'upstream_redirect']);
    assert.equal(upstream.requests.length, 1);
    const names = Object.keys(upstream.requests[0]?.headers ?? {});
    assert.ok(!names.includes('sec-fetch-mode') && !names.includes('user-agent'), names.join());
  });
});
