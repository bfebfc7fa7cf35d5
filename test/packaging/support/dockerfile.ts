/**
 * A Dockerfile as instructions, and as much of a builder as proves its commands without a container engine.
 */
import { cpSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ROOT, run } from '../../support/processes/tools.ts';

export interface Instruction {
  /** `FROM`, `RUN` … */
  readonly name: string;
  /** `--from=…`, without the dashes. */
  readonly flags: Readonly<Record<string, string>>;
  readonly text: string;
}

export interface Stage {
  readonly image: string;
  readonly as: string | undefined;
  readonly instructions: readonly Instruction[];
}

/**
 * The instructions, with continued lines joined and comments left out. Throws on what it does not understand.
 */
export function parseInstructions(source: string): Instruction[] {
  const lines = source.split('\n').filter((line) => !/^\s*#/.test(line));
  const joined = lines.join('\n').replace(/\\\n/g, ' ').split('\n');
  return joined
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line) => {
      const [, name, rest] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
      if (name === undefined || rest === undefined) throw new Error(`not an instruction: ${line}`);
      const flags: Record<string, string> = {};
      const text = rest.replace(/^(?:--[a-z-]+=\S+\s+)+/, (all) => {
        for (const flag of all.trim().split(/\s+/)) {
          const [key, value] = flag.slice(2).split(/=(.*)/s);
          flags[key as string] = value as string;
        }
        return '';
      });
      return { name, flags, text };
    });
}

/** The stages in order; what stands before the first FROM is apart. */
export function parseDockerfile(source: string): { globals: Instruction[]; stages: Stage[] } {
  const globals: Instruction[] = [];
  const stages: (Stage & { instructions: Instruction[] })[] = [];
  for (const instruction of parseInstructions(source)) {
    if (instruction.name === 'FROM') {
      const [, image, as] = /^(\S+)(?:\s+AS\s+(\S+))?$/.exec(instruction.text) ?? [];
      if (image === undefined) throw new Error(`FROM ${instruction.text}`);
      stages.push({ image, as, instructions: [] });
    } else (stages.at(-1)?.instructions ?? globals).push(instruction);
  }
  return { globals, stages };
}

/**
 * Carries out WORKDIR, COPY and RUN of each stage, in a directory of its own below `scratch` that stands for
 * the stage's root. RUN commands see this machine instead of the base image, so they must keep to relative
 * paths. Returns the directory of the last stage.
 */
export function buildStages(
  stages: readonly Stage[],
  scratch: string,
  options: {
    readonly args: Readonly<Record<string, string>>;
    /** Stands in for a RUN command; `undefined`: run it. */
    readonly instead: (command: string, directory: string) => (() => void) | undefined;
  },
): string {
  const rootOf = (name: string): string => join(scratch, name);
  let last = '';
  for (const [index, { as = `stage-${index}`, instructions }] of stages.entries()) {
    const root = rootOf(as);
    mkdirSync(root, { recursive: true });
    let directory = root;
    for (const { name, flags, text } of instructions) {
      if (name === 'WORKDIR') {
        directory = join(root, text);
        mkdirSync(directory, { recursive: true });
      }
      if (name === 'COPY') {
        const from = flags['from'] === undefined ? ROOT : rootOf(flags['from']);
        copy(text.split(/\s+/), from, directory, root);
      }
      if (name === 'RUN') {
        const stand = options.instead(text, directory);
        if (stand === undefined) shell(text, directory, options.args);
        else stand();
      }
    }
    last = root;
  }
  return last;
}

function copy(words: readonly string[], from: string, directory: string, root: string): void {
  const sources = words.slice(0, -1);
  const to = words.at(-1) as string;
  const target = to.startsWith('/') ? join(root, to) : join(directory, to);
  for (const source of sources) {
    const path = join(from, source);
    if (!existsSync(path)) throw new Error(`COPY: there is no ${path}`);
    const intoDirectory = to.endsWith('/') && statSync(path).isFile();
    cpSync(path, intoDirectory ? join(target, basename(source)) : target, { recursive: true });
  }
}

function shell(command: string, directory: string, args: Readonly<Record<string, string>>): void {
  const env = { PATH: process.env['PATH'], HOME: process.env['HOME'], ...args };
  const { status, stderr } = run('sh', ['-c', command], { cwd: directory, env, timeoutMs: 600_000 });
  if (status !== 0) throw new Error(`RUN ${command}: ${stderr}`);
}
