import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { type Browser, launchBrowser, type Page } from '../support/doors/browser.ts';
import { CHAT_PAGE, servePage } from '../support/doors/chat-page.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { program } from '../support/processes/foreign-programs.ts';
import type { Listening } from '../support/remote/loopback.ts';

const CHROMIUM = program('chromium');
const CANARY = 'canary-browser-e4d9 shown in a page';
const HOSTS = ['app.test', 'foreign.test', 'evil.test', 'localhost'];

interface Question {
  readonly content: string;
  readonly model?: string;
  readonly type?: string;
  readonly mode?: 'no-cors';
}

const ask = (page: Page, url: string, question: Question): Promise<void> =>
  page.evaluate(`void ask(${JSON.stringify(url)}, ${JSON.stringify(question)})`);

const shown = (page: Page): Promise<string> => page.evaluate(`document.querySelector('#answer').textContent`);

describe('web pages in Chromium', { skip: CHROMIUM.skip }, () => {
  let browser: Browser;
  let pages: Listening;
  let stack: Stack;
  let chat: string;
  before(async () => {
    pages = await servePage();
    stack = await startStack({ flags: [`--cors-allowed-origins=http://app.test:${pages.port}`] });
    chat = `${stack.url}/v1/chat/completions`;
    browser = await launchBrowser(CHROMIUM, HOSTS);
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
  });
  after(async () => {
    await browser?.close();
    await stack?.close();
    await pages?.close();
  });
  beforeEach(() => {
    stack.simulator.exchanges.clear();
    stack.simulator.recorder.clear();
  });

  const open = (host: string): Promise<Page> => browser.open(`http://${host}:${pages.port}/`);
  const openFile = (): Promise<Page> => {
    const path = join(stack.directory, 'page.html');
    writeFileSync(path, CHAT_PAGE);
    return browser.open(pathToFileURL(path).href);
  };

  function assertNothingWentOut({ simulator }: Stack): void {
    const sent = simulator.recorder.requests().map(({ method, path }) => `${method} ${path}`);
    assert.deepEqual(sent, []);
  }

  describe('a page on an allowed origin', () => {
    it('streams a completion and shows it, token by token', async () => {
      const page = await open('app.test');
      await ask(page, chat, { content: CANARY, model: 'sim-10x200' });
      assert.equal(await page.titleLike(/^(?!ready|asking)/), 'answered');
      assert.equal(await shown(page), 't0 t1 t2 t3 t4 t5 t6 t7 t8 t9');
      const arrivals = await page.evaluate<number[]>('arrivals');
      assert.ok(arrivals.length >= 8, `the answer came in ${arrivals.length} pieces`);
      assert.ok((arrivals.at(-1) ?? 0) - (arrivals[0] ?? 0) > 300, 'the answer came at once');
    });

    it('sends a prompt that only the model sees, and can read the receipt header', async () => {
      const page = await open('app.test');
      await ask(page, chat, { content: CANARY });
      assert.equal(await page.titleLike(/^(?!ready|asking)/), 'answered');
      assert.equal(await shown(page), CANARY);
      const receipt = await page.evaluate(`document.querySelector('#receipt').textContent`);
      assert.equal(receipt, stack.simulator.manifestSha256);
      assert.ok(stack.simulator.exchanges.last()?.opened.includes(CANARY));
      assert.equal(stack.simulator.recorder.containing('canary-browser').length, 0);
      for (const [, value] of Object.entries(stack.simulator.recorder.requests()[0]?.headers ?? {})) {
        assert.doesNotMatch(value, /app\.test|Mozilla/);
      }
    });
  });

  const foreign: readonly (readonly [what: string, open: () => Promise<Page>])[] = [
    ['a page on a foreign origin', () => open('foreign.test')],
    ['a page of the allowed host from a page server on localhost', () => open('localhost')],
    ['a page from a file', () => openFile()],
  ];
  for (const [what, opened] of foreign) {
    describe(what, () => {
      it('cannot send a request, with a preflight or without', async () => {
        const page = await opened();
        await ask(page, chat, { content: CANARY });
        assert.equal(await page.titleLike(/^failed|^answered|^refused/), 'failed TypeError');
        await ask(page, chat, { content: CANARY, type: 'text/plain', mode: 'no-cors' });
        assert.equal(await page.titleLike(/^(?!failed|asking)/), 'opaque');
        assertNothingWentOut(stack);
      });

      it('cannot submit a form, and the error names --cors-allowed-origins', async () => {
        const page = await opened();
        await page.evaluate(`{
          const form = Object.assign(document.createElement('form'), { method: 'POST', action: ${JSON.stringify(chat)}, enctype: 'text/plain' });
          form.append(Object.assign(document.createElement('input'), { name: '{"model":"sim-echo","x":"', value: '"}' }));
          document.body.append(form);
          form.submit();
        }`);
        const text = await eventually('the refusal on the page', async () => {
          const words = await page.evaluate<string>('document.body?.innerText ?? ""');
          return words.includes('origin_forbidden') && words;
        });
        assert.match(text, /--cors-allowed-origins/);
        assertNothingWentOut(stack);
      });

      it('cannot read the list of models, neither by fetch nor as an image', async () => {
        const page = await opened();
        const models = JSON.stringify(`${stack.url}/v1/models`);
        const outcome = await page.evaluate(`Promise.all([
          fetch(${models}).then(() => 'read', (error) => error.name),
          new Promise((done) => Object.assign(new Image(), { src: ${models}, onload: done, onerror: () => done('error') })),
        ])`);
        assert.deepEqual(outcome, ['TypeError', 'error']);
        assertNothingWentOut(stack);
      });
    });
  }

  it('a page whose host name resolves to this machine after it has loaded (DNS rebinding) is refused with 403', async () => {
    const attacker = await servePage();
    const page = await browser.open(`http://evil.test:${attacker.port}/`);
    await attacker.close();
    const victim = await startStack({ flags: [`--port=${attacker.port}`] });
    try {
      await victim.proxy.session.acquire({ timeoutMs: 20_000 });
      victim.simulator.recorder.clear();
      await ask(page, '/v1/chat/completions', { content: CANARY });
      assert.equal(await page.titleLike(/^(?!ready|asking)/), 'refused 403');
      // Of a same-origin GET over plain HTTP the browser says neither Origin nor Sec-Fetch-Site.
      assert.equal(await page.evaluate("fetch('/v1/models').then((answer) => answer.status)"), 403);
      assertNothingWentOut(victim);
    } finally {
      await victim.close();
    }
  });
});
