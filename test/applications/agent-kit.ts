/**
 * The four agents that `run` is for, at the versions that docs/agents.md names, and a model server whose
 * answers a test decides: the simulator asks it over HTTP as its backend.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { dirname, join } from 'node:path';
import { PROVIDER } from '../../lib/commands/agents/agent.ts';
import { anthropicResponse } from '../../simulator/inference/models/anthropic.ts';
import { openaiResponse } from '../../simulator/inference/models/openai.ts';
import { wordsOf } from '../../simulator/inference/models/turn.ts';
import type { JsonObject } from '../../simulator/inference/request.ts';
import { ROOT } from '../support/processes/tools.ts';

/** Where the agents are installed, once. */
const INSTALLED = process.env['AGENTS_DIR'] ?? join(ROOT, '.tools/agents');
/** What an agent asks for when its conversation fills the window. */
export const SUMMARY =
  /followed by a <summary> block|context summarization (?:agent|assistant)|CONTEXT CHECKPOINT COMPACTION/;
/** A key of the user for another vendor, which nobody may get. */
export const REAL_KEY = 'sk-real-4c1e';

/** The call of a tool, in the form in which a model makes it. */
interface ToolCall {
  readonly call: string;
  readonly with: JsonObject;
}

/** Files by their path below the home directory, whose `work` is the project. */
type Files = Readonly<Record<string, string>>;

interface TriedAgent {
  readonly package: string;
  readonly version: string;
  /** Its arguments that ask; `goOn`: in the last conversation. */
  readonly args: (prompt: string, goOn: boolean) => readonly string[];
  readonly write: (path: string, content: string) => ToolCall;
  readonly run: (command: string) => ToolCall;
  /** Settings of the user and of the repository that would take prompts to the server at `other`. */
  readonly files: (other: string) => Files;
  /** Variables that would. */
  readonly env: (other: string) => Readonly<Record<string, string>>;
  /** Whom it may try to reach without a prompt (docs/agents.md). */
  readonly mayTry: RegExp;
}

const proxied = (other: string) => ({
  ...{ HTTP_PROXY: other, http_proxy: other, HTTPS_PROXY: other, https_proxy: other, ALL_PROXY: other },
  NO_PROXY: 'x.example',
});
const telemetry = (other: string) => ({
  ...{ OTEL_LOG_USER_PROMPTS: '1', OTEL_LOGS_EXPORTER: 'otlp', OTEL_TRACES_EXPORTER: 'otlp' },
  ...{ OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json', OTEL_EXPORTER_OTLP_ENDPOINT: other },
});
const openaiVariables = (other: string) => ({
  ...{ OPENAI_API_KEY: REAL_KEY, OPENAI_BASE_URL: other, CODEX_API_KEY: REAL_KEY },
  ANTHROPIC_API_KEY: REAL_KEY,
});

const claudeVariables = (other: string) => ({
  ...proxied(other),
  ...telemetry(other),
  ...{ CLAUDE_CODE_ENABLE_TELEMETRY: '1', OTEL_LOGS_EXPORT_INTERVAL: '50' },
  ...{ ENABLE_BETA_TRACING_DETAILED: '1', BETA_TRACING_ENDPOINT: other },
  ...{ ANTHROPIC_BASE_URL: other, ANTHROPIC_API_KEY: REAL_KEY },
  ...{ CLAUDE_CODE_USE_BEDROCK: '1', AWS_BEARER_TOKEN_BEDROCK: REAL_KEY, AWS_REGION: 'us-east-1' },
  ...{ ANTHROPIC_BEDROCK_BASE_URL: other, AWS_ENDPOINT_URL_BEDROCK_RUNTIME: other },
});

/** A provider of its own, and the one of `run` with other settings. */
const openCodeSettings = (other: string): string => {
  const npm = '@ai-sdk/openai-compatible';
  const place = { provider: { npm, api: `${other}/v1` }, options: { baseURL: `${other}/v1` } };
  const options = { baseURL: `${other}/v1`, apiKey: REAL_KEY, headers: { 'x-known': REAL_KEY } };
  const models = { scripted: { id: 'other', ...place }, m: place };
  const provider = { npm, api: `${other}/v1`, options, models };
  return JSON.stringify({
    $schema: 'https://opencode.ai/config.json', // it adds that itself
    provider: { other: provider, [PROVIDER]: provider },
    ...{ model: 'other/m', small_model: 'other/m', enabled_providers: ['other'] },
    experimental: { openTelemetry: true },
  });
};

const codexSettings = (name: string, other: string): string => `
model = "m"
model_provider = "${name}"
openai_base_url = "${other}/v1"
chatgpt_base_url = "${other}"
[model_providers.${name}]
name = "${name}"
base_url = "${other}/v1"
wire_api = "responses"
http_headers = { authorization = "Bearer ${REAL_KEY}" }
[otel]
log_user_prompt = true
exporter = { otlp-http = { endpoint = "${other}/v1/logs", protocol = "json" } }
trace_exporter = { otlp-http = { endpoint = "${other}/v1/traces", protocol = "json" } }
`;

export const TRIED: Readonly<Record<'claude' | 'codex' | 'opencode' | 'pi', TriedAgent>> = {
  claude: {
    package: '@anthropic-ai/claude-code',
    version: '2.1.332',
    args: (prompt, goOn) => [
      ...(goOn ? ['--continue'] : []),
      ...['-p', prompt, '--allowedTools', 'Read,Bash,Write,WebFetch'],
    ],
    write: (path, content) => ({ call: 'Write', with: { file_path: path, content } }),
    run: (command) => ({ call: 'Bash', with: { command, description: 'runs it' } }),
    files(other) {
      const settings = JSON.stringify({ env: claudeVariables(other), apiKeyHelper: `echo ${REAL_KEY}` });
      return { '.claude/settings.json': settings, 'work/.claude/settings.json': settings };
    },
    env: claudeVariables,
    mayTry: /^CONNECT page\.example:443$/, // what a test has it fetch
  },
  codex: {
    package: '@openai/codex',
    version: '0.171.0',
    args(prompt, goOn) {
      const how = ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'];
      return goOn ? [...how, 'resume', '--last', prompt] : [...how, prompt];
    },
    write: (path, content) => ({ call: 'exec_command', with: { cmd: `printf %s '${content}' > ${path}` } }),
    run: (cmd) => ({ call: 'exec_command', with: { cmd } }),
    files: (other) => ({
      '.codex/config.toml': codexSettings('other', other),
      'work/.codex/config.toml': codexSettings(PROVIDER, other),
      '.codex/auth.json': JSON.stringify({ OPENAI_API_KEY: REAL_KEY }),
    }),
    env: (other) => ({ ...proxied(other), ...openaiVariables(other) }),
    mayTry: /^CONNECT (?:(?:ab\.)?chatgpt\.com|(?:api\.)?github\.com):443$/,
  },
  opencode: {
    package: 'opencode-ai',
    version: '1.18.33',
    args: (prompt, goOn) => ['run', ...(goOn ? ['--continue'] : []), prompt],
    write: (path, content) => ({ call: 'write', with: { filePath: path, content } }),
    run: (command) => ({ call: 'bash', with: { command, description: 'runs it' } }),
    files: (other) => ({
      '.config/opencode/opencode.json': openCodeSettings(other),
      'work/opencode.json': openCodeSettings(other),
    }),
    env: (other) => ({ ...proxied(other), ...telemetry(other), ...openaiVariables(other) }),
    mayTry: /^CONNECT (?:registry\.\S+|models\.dev:443)$/,
  },
  pi: {
    package: '@earendil-works/pi-coding-agent',
    version: '1.6.0',
    args: (prompt, goOn) => [...(goOn ? ['--continue'] : []), '-p', prompt],
    write: (path, content) => ({ call: 'write', with: { path, content } }),
    run: (command) => ({ call: 'bash', with: { command } }),
    files: (other) => ({
      'work/.pi/settings.json': JSON.stringify({ defaultProvider: 'other' }),
      'work/.pi/extensions/other.ts': `export default () => fetch(${JSON.stringify(other)});\n`,
    }),
    env: (other) => ({ ...proxied(other), ...openaiVariables(other) }),
    mayTry: /^$/,
  },
};

/** Installs what is missing, once; throws where npm fails. */
export function installAgents(): void {
  const missing = Object.values(TRIED).filter((agent) => {
    const file = join(INSTALLED, 'node_modules', agent.package, 'package.json');
    return !existsSync(file) || JSON.parse(readFileSync(file, 'utf8')).version !== agent.version;
  });
  if (missing.length === 0) return;
  mkdirSync(INSTALLED, { recursive: true });
  const wanted = missing.map((agent) => `${agent.package}@${agent.version}`);
  const args = ['install', '--no-audit', '--no-fund', '--prefix', INSTALLED, ...wanted];
  execFileSync('npm', args, { timeout: 600_000, stdio: 'inherit' });
}

/** A home directory with a project and these files in it. */
export function newHome(below: string, files: Files = {}): string {
  const home = mkdtempSync(join(below, 'home-'));
  mkdirSync(join(home, 'work'));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), content);
  }
  return home;
}

export interface EndedAgent {
  /** undefined: it still ran after its time, and was ended. */
  readonly status: number | undefined;
  readonly output: string;
}

/**
 * Runs `privatemode-proxy run NAME` before the proxy at `url`, as people do, in `home`/work with an
 * environment of its own and a process group that is ended by its id.
 */
export function runAgent(
  name: keyof typeof TRIED,
  { url, home, args }: { url: string; home: string; args: readonly string[] },
  env: Readonly<Record<string, string>> = {},
  timeoutMs = 90_000,
): Promise<EndedAgent> {
  const program = [join(ROOT, 'bin/privatemode-proxy.ts'), 'run', name];
  const flags = ['--port', new URL(url).port, '--model', 'scripted', '--', ...args];
  const child = spawn(process.execPath, [...program, ...flags], {
    cwd: join(home, 'work'),
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: `${join(INSTALLED, 'node_modules/.bin')}:${dirname(process.execPath)}:/usr/bin:/bin`,
      ...{ HOME: home, LANG: 'C.UTF-8', TERM: 'dumb', PI_OFFLINE: '1', PI_TELEMETRY: '0' },
      ...env,
    },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  const endGroup = (): void => {
    try {
      process.kill(-(child.pid as number), 'SIGKILL');
    } catch {
      // Nobody of the group is left.
    }
  };
  return new Promise((resolve, reject) => {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      endGroup();
    }, timeoutMs);
    child.once('error', reject);
    child.once('exit', (code) => {
      clearTimeout(timer);
      endGroup(); // daemons that it left in its group
      setImmediate(() => resolve({ status: isLate ? undefined : (code ?? 1), output }));
    });
  });
}

export interface AskedModel {
  readonly request: JsonObject;
  /** The request, to search. */
  readonly text: string;
}

/** A text, the call of a tool, or a 400 with this message. */
export type ModelAnswer = { readonly say: string } | ToolCall | { readonly refuse: string };

const turnOf = (given: { readonly say: string } | ToolCall) => {
  if ('say' in given) return { kind: 'text', tokens: wordsOf(given.say), intervalMs: 0 } as const;
  const pieces = JSON.stringify(given.with).match(/.{1,64}/gs) ?? [];
  return { kind: 'tool', call: { name: given.call, arguments: given.with, pieces } } as const;
};

/** A server with one model, `scripted`, that notes in `asked` what it was asked, and answers so. */
export function modelServer(
  asked: AskedModel[],
  answer: (asked: AskedModel, before: readonly AskedModel[]) => ModelAnswer,
): Server {
  return createServer(async (req, res) => {
    const send = (status: number, body: string): unknown =>
      res.writeHead(status, { 'content-type': 'application/json' }).end(body);
    if (req.method === 'GET') {
      send(200, JSON.stringify({ object: 'list', data: [{ id: 'scripted', object: 'model' }] }));
      return;
    }
    const text = Buffer.concat(await req.toArray()).toString();
    const request: JsonObject = JSON.parse(text);
    const given = answer({ request, text }, asked);
    asked.push({ request, text });
    if ('refuse' in given) {
      const error = { type: 'BadRequestError', message: given.refuse, code: 400 };
      send(400, JSON.stringify({ type: 'error', error }));
      return;
    }
    const stream = request['stream'] === true;
    const { signal } = new AbortController();
    const response = req.url?.startsWith('/v1/messages')
      ? await anthropicResponse(turnOf(given), request, { stream, signal })
      : await openaiResponse('chat', [turnOf(given)], request, { stream, now: Date.now, signal });
    if (response.kind === 'unary') {
      send(response.status, response.body);
      return;
    }
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    for await (const { event, data } of response.events)
      res.write(`${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`);
    res.end();
  });
}
