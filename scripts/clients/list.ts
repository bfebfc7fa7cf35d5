/** The clients that scripts/clients.ts runs. Versions come from the manifests beside their programs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export type Language = 'javascript' | 'python' | 'go' | 'java' | 'rust' | 'shell';

export interface Client {
  readonly name: string;
  readonly version: string;
  readonly language: Language;
  readonly languageName: string;
  /** Program and arguments, in the directory of the language's installation. */
  readonly command: readonly string[];
  /** Features that fail for a reason of the client's own, which is given in words. */
  readonly known?: Readonly<Record<string, string>>;
}

const manifest = (path: string): string => readFileSync(join(import.meta.dirname, path), 'utf8');

/**
 * The version of a package in a manifest: what stands behind its name and this separator. Throws where there
 * is none.
 */
function pinned(text: string, name: string, separator: string): string {
  const from = text.indexOf(name + separator);
  const version =
    from < 0 ? undefined : /\d[\w.]*\d/.exec(text.slice(from + name.length + separator.length))?.[0];
  if (version === undefined) throw new Error(`no version of ${name}`);
  return version;
}

const javascript = (name: string, key: string, ...command: string[]): Client => ({
  name,
  version: pinned(manifest('javascript/package.json'), `"${key}"`, ': "'),
  language: 'javascript',
  languageName: 'JavaScript',
  command: ['node', ...command],
});

const python = (name: string, program: string, group = 'current', ...args: string[]): Client => ({
  name,
  version: pinned(manifest(`python/${group}.txt`), /^[^ ,]+/.exec(name)?.[0] as string, '=='),
  language: 'python',
  languageName: 'Python',
  command: [`${group}/bin/python`, `${program}.py`, ...args],
});

const go = (name: string, program: string): Client => ({
  name,
  version: pinned(manifest('go/go.mod'), name, ' v'),
  language: 'go',
  languageName: 'Go',
  command: [`bin/${program}`],
});

/** For clients whose loops read on, or keep the connection, when the program leaves them. */
const KEEPS_CONNECTION = { abort: 'leaving the loop over its stream does not close the connection' };

/** The generator that the program leaves is part of a cycle of references. */
const CLOSES_LATE = {
  abort: "leaving the loop over its stream closes the connection only when Python's garbage collector runs",
};

export const CLIENTS: readonly Client[] = [
  javascript('openai', 'openai', 'openai.mjs', 'openai'),
  javascript('openai, previous', 'openai-previous', 'openai.mjs', 'openai-previous'),
  javascript('@anthropic-ai/sdk', '@anthropic-ai/sdk', 'anthropic.mjs', '@anthropic-ai/sdk'),
  javascript('@anthropic-ai/sdk, previous', 'anthropic-previous', 'anthropic.mjs', 'anthropic-previous'),
  javascript('@ai-sdk/openai-compatible', '@ai-sdk/openai-compatible', 'ai-sdk.mjs', 'openai'),
  javascript('@ai-sdk/anthropic', '@ai-sdk/anthropic', 'ai-sdk.mjs', 'anthropic'),
  javascript('@langchain/openai', '@langchain/openai', 'langchain.mjs', 'openai'),
  javascript('@langchain/anthropic', '@langchain/anthropic', 'langchain.mjs', 'anthropic'),
  { ...javascript('@llamaindex/openai', '@llamaindex/openai', 'llamaindex.mjs'), known: KEEPS_CONNECTION },
  javascript('@openai/agents', '@openai/agents', 'agents.mjs'),
  python('openai', 'openai_sdk'),
  python('openai, previous', 'openai_sdk', 'openai-2'),
  python('anthropic', 'anthropic_sdk'),
  python('httpx', 'httpx_raw'),
  python('langchain-openai', 'langchain_chat', 'current', 'openai'),
  {
    ...python('langchain-anthropic', 'langchain_chat', 'current', 'anthropic'),
    known: {
      usage:
        'it takes the tokens in from the last event (`message_delta`), the simulated service gives them in the first (`message_start`)',
    },
  },
  python('pydantic-ai-slim[openai]', 'pydantic_agent'),
  python('openai-agents', 'openai_agents'),
  { ...python('smolagents[openai]', 'smolagents_model'), known: CLOSES_LATE },
  { ...python('semantic-kernel', 'semantic_kernel_chat'), known: KEEPS_CONNECTION },
  python('litellm', 'litellm_completion', 'openai-2'),
  { ...python('llama-index-llms-openai-like', 'llama_index_llm', 'openai-2'), known: CLOSES_LATE },
  python('instructor', 'instructor_client', 'openai-2'),
  go('github.com/openai/openai-go/v3', 'openai-go'),
  go('github.com/anthropics/anthropic-sdk-go', 'anthropic-sdk-go'),
  go('github.com/sashabaranov/go-openai', 'go-openai'),
  {
    name: 'com.openai:openai-java',
    version: pinned(manifest('java/pom.xml'), '<artifactId>openai-java</artifactId>', '\n      <version>'),
    language: 'java',
    languageName: 'Java',
    command: ['java', '-cp', 'target/classes:lib/*', 'Main'],
  },
  {
    name: 'async-openai',
    version: pinned(manifest('rust/Cargo.toml'), 'async-openai', ' = { version = "='),
    language: 'rust',
    languageName: 'Rust',
    command: ['target/debug/clients'],
  },
  {
    name: 'curl',
    version: 'as installed',
    language: 'shell',
    languageName: 'shell',
    command: ['bash', 'curl.sh'],
  },
];
