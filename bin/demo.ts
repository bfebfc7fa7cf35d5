#!/usr/bin/env node
/**
 * The whole thing on one machine: a simulated deployment, the proxy in front of it, and one streamed completion through
 * the official OpenAI client. With --once it exits with 0 or 1; otherwise it stays up for you to try.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { type RunningProxy, startProxy } from '../lib/app.ts';
import { parseConfig } from '../lib/config.ts';
import { createLogger } from '../lib/observe/log.ts';
import { startSimulator } from '../lib/simulator/simulator.ts';

const PROMPT = 'Every byte of this sentence crosses the wire encrypted, and comes back token by token.';
const once = process.argv.includes('--once');
const directory = mkdtempSync(join(tmpdir(), 'privatemode-demo-'));
const say = (text = ''): boolean => process.stdout.write(`${text}\n`);

try {
  process.exitCode = await demo();
} catch (error) {
  say(`\nThe demo failed: ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function demo(): Promise<number> {
  say('Starting a simulated deployment (it makes its own hardware keys, this takes a second) …');
  const simulator = await startSimulator({ directory });
  const { config } = parseConfig(
    [
      ['--api-endpoint', `localhost:${simulator.port}`],
      ['--manifest-path', join(directory, 'manifest.json')],
      ['--unsafe-trust-roots', join(directory, 'roots')],
      ['--api-key', 'demo'],
      ['--listen-address', '127.0.0.1'],
      ['--port', once ? '0' : '8080'],
      ['--workspace', join(directory, 'workspace')],
    ].flat(),
    {},
  );
  const proxy = await startProxy(config, {
    env: { SSL_CERT_FILE: join(directory, 'ca.pem') },
    log: createLogger({ format: 'text', level: 50 }),
  });
  try {
    await proxy.session.acquire({ timeoutMs: 30_000 });
    showVerdict(proxy);
    const text = await showCompletion(proxy.url);
    const leaked = simulator.recorder.containing(PROMPT.slice(0, 24)).length;
    say(`\nRequests in which the remote's wire saw the prompt in clear: ${leaked}.`);
    if (text.trim() !== PROMPT || leaked > 0) return 1;
    if (!once) {
      showHints(proxy.url);
      await new Promise((resolve) => {
        process.once('SIGINT', resolve);
        process.once('SIGTERM', resolve);
      });
    }
    return 0;
  } finally {
    await proxy.close();
    await simulator.close();
  }
}

function showVerdict(proxy: RunningProxy): void {
  const verdict = proxy.session.lastVerdict();
  const passed = verdict?.checks.filter(({ outcome }) => outcome === 'pass') ?? [];
  say(`\nThe remote was ${verdict?.outcome}: ${passed.length} checks of its evidence passed, among them`);
  const telling = /chain|signature|report_data|measurement|host_data|debug|crl|tcb/;
  for (const { id, found } of passed.filter((check) => telling.test(check.id)).slice(0, 12)) {
    say(`  ✓ ${id.padEnd(32)} ${found.slice(0, 60)}`);
  }
  const epoch = proxy.session.current();
  say(`  manifest ${epoch?.manifestSha256}`);
  say(`  secret   ${epoch?.secretId}`);
}

async function showCompletion(url: string): Promise<string> {
  say('\nOne streamed completion through the official OpenAI client:\n');
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  const stream = await client.chat.completions.create({
    model: 'sim-echo',
    messages: [{ role: 'user', content: PROMPT }],
    stream: true,
  });
  let text = '';
  process.stdout.write('  ');
  for await (const chunk of stream) {
    const token = chunk.choices[0]?.delta.content ?? '';
    text += token;
    process.stdout.write(token);
  }
  say();
  return text;
}

function showHints(url: string): void {
  say(`
The proxy listens on ${url} until you press Ctrl-C. Try it:

  curl -N ${url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"sim-20x100","stream":true,"messages":[{"role":"user","content":"hello"}]}'

  OpenAI SDKs      OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=placeholder
  Anthropic SDKs   ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=placeholder
  Claude Code      ANTHROPIC_BASE_URL=${url} ANTHROPIC_AUTH_TOKEN=placeholder ANTHROPIC_MODEL=sim-echo claude
`);
}
