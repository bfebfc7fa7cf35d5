/**
 * A real browser without a window, steered over the DevTools protocol through a pipe; nothing of it leaves
 * this machine.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../processes/eventually.ts';
import type { Program } from '../processes/foreign-programs.ts';
import { cleanEnvironment } from '../processes/program.ts';

export interface Page {
  /** Value of an expression, awaited where it is a promise; has to be JSON. */
  evaluate<Value>(expression: string): Promise<Value>;
  /** Resolves with the document's title once it fits. */
  titleLike(pattern: RegExp): Promise<string>;
  /** Closes the tab. */
  close(): Promise<void>;
}

export interface Browser {
  /** A page in a tab of its own. */
  open(url: string): Promise<Page>;
  close(): Promise<void>;
}

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--no-default-browser-check',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-default-apps',
  '--disable-domain-reliability',
  '--disable-sync',
  '--no-pings',
  '--no-proxy-server',
  '--remote-debugging-pipe',
];

const ANSWER_WITHIN = 60_000;

interface Message {
  readonly id?: number;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

type Send = (
  method: string,
  params?: Record<string, unknown>,
  sessionId?: string,
) => Promise<Record<string, unknown>>;

/** Host names of `hosts` are this machine; all others resolve to nothing. `flags` are added to ours. */
export async function launchBrowser(
  chromium: Program,
  hosts: readonly string[],
  flags: readonly string[] = [],
): Promise<Browser> {
  const directory = mkdtempSync(join(tmpdir(), 'browser-'));
  const rules = [...hosts.map((host) => `MAP ${host} 127.0.0.1`), 'MAP * ~NOTFOUND', 'EXCLUDE 127.0.0.1'];
  const child = spawn(
    chromium.path,
    [
      ...FLAGS,
      ...flags,
      `--user-data-dir=${join(directory, 'profile')}`,
      `--host-resolver-rules=${rules.join(', ')}`,
      'about:blank',
    ],
    {
      env: cleanEnvironment({ HOME: directory }),
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
      detached: true, // a process group of its own, so that its end takes its children along
    },
  );
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const exited = once(child, 'exit');
  const send = protocol(
    child.stdio[3] as Writable,
    child.stdio[4] as Readable,
    () => `the browser said:\n${said}`,
  );

  return {
    async open(url) {
      const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
      const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true });
      return openedPage((method, params) => send(method, params, String(sessionId)), url);
    },
    async close() {
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
        await Promise.race([send('Browser.close').catch(() => {}), delay(2_000)]);
        const force = setTimeout(() => process.kill(-(child.pid as number), 'SIGKILL'), 3_000);
        await exited;
        clearTimeout(force);
      }
      rmSync(directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    },
  };
}

/**
 * Commands out, answers in: JSON texts, each ended by a NUL. Commands reject where the browser refuses or is
 * silent.
 */
function protocol(commands: Writable, answers: Readable, context: () => string): Send {
  const waiting = new Map<number, (message: Message) => void>();
  let last = 0;
  let rest = '';
  answers.setEncoding('utf8').on('data', (text: string) => {
    const messages = (rest + text).split('\0');
    rest = messages.pop() ?? '';
    for (const message of messages.map((json) => JSON.parse(json) as Message)) {
      if (message.id !== undefined) waiting.get(message.id)?.(message);
    }
  });
  commands.on('error', () => {});
  return (method, params = {}, sessionId) => {
    const id = ++last;
    const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>();
    const late = setTimeout(
      () => reject(new Error(`${method} was not answered; ${context()}`)),
      ANSWER_WITHIN,
    );
    waiting.set(id, ({ result, error }) => {
      clearTimeout(late);
      waiting.delete(id);
      if (error === undefined) resolve(result ?? {});
      else reject(new Error(`${method}: ${error.message}`));
    });
    commands.write(`${JSON.stringify({ id, method, params, ...(sessionId && { sessionId }) })}\0`);
    return promise;
  };
}

/** The page of that tab once it has loaded. */
async function openedPage(
  send: (method: string, params?: Record<string, unknown>) => ReturnType<Send>,
  url: string,
): Promise<Page> {
  const evaluate = async <Value>(expression: string): Promise<Value> => {
    const given = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await send('Runtime.evaluate', given);
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
    return (result as { value: Value }).value;
  };
  const { errorText } = await send('Page.navigate', { url });
  if (errorText !== undefined) throw new Error(`${url}: ${errorText}`);
  const loaded = `document.readyState === 'complete' && location.href !== 'about:blank'`;
  await eventually(`${url} to load`, () => evaluate<boolean>(loaded), ANSWER_WITHIN, 20);
  return {
    evaluate,
    async titleLike(pattern) {
      let title = '';
      const isLike = async (): Promise<boolean> => {
        title = await evaluate<string>('document.title');
        return pattern.test(title);
      };
      await eventually(() => `a title like ${pattern}, not ${title}`, isLike, ANSWER_WITHIN, 20);
      return title;
    },
    async close() {
      await send('Page.close');
    },
  };
}
