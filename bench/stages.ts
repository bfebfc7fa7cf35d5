/**
 * Where the processor time of a token goes: a CPU profile of our source under the load of
 * `stream_cpu_per_token`.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cpuPerEvent } from './metrics/stream-cpu.ts';
import type { Subjects } from './subjects.ts';

/** What V8 writes: nodes of the call tree, and the node that ran at each moment (µs since the one before). */
export interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string };
    readonly children?: readonly number[];
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** By the innermost function that matches; V8's own functions count for whoever called them. */
const STAGES: readonly (readonly [stage: string, url: RegExp, name?: RegExp])[] = [
  ['decrypt', /\/lib\/(crypto|envelope)\/|^node:internal\/crypto/],
  ['parse', /\/lib\/pipeline\/(sse|json)\/|\/response-grammar\.ts|eventsource-parser/],
  ['frame', /\/lib\/pipeline\/decrypt/],
  ['read', /^node:internal\/stream_base_commons/, /^onStreamRead/],
  ['read', /^node:(_http_client|_http_common|_http_incoming|_tls_wrap|internal\/streams\/readable)/],
  [
    'write',
    /^node:(_http_outgoing|_http_server|net|internal\/stream_base_commons|internal\/streams\/writable)/,
  ],
];
const OTHER = 'timers, streams between, rest';
/** Names that V8 gives to what is no function. */
const UNNAMED: ReadonlyMap<string, string> = new Map([
  ['(program)', 'event loop and TLS outside of functions'],
  ['(garbage collector)', 'garbage collection'],
]);

/** The share of each stage in the last `ms` of a profile, idling left out, largest first. */
export function stagesIn({ nodes, samples, timeDeltas }: Profile, ms: number): Record<string, number> {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const callers = new Map(
    nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)),
  );
  const stageOf = (id: number): string => {
    const { functionName } = byId.get(id)!.callFrame;
    const unnamed = UNNAMED.get(functionName);
    if (unnamed !== undefined) return unnamed;
    for (let at: number | undefined = id; at !== undefined; at = callers.get(at)) {
      const { functionName: name, url } = byId.get(at)!.callFrame;
      const found = STAGES.find(([, where, who]) => where.test(url) && (who === undefined || who.test(name)));
      if (found !== undefined) return found[0];
    }
    return OTHER;
  };
  const spent = new Map<string, number>();
  let [left, all] = [1000 * ms, 0];
  for (let i = samples.length - 1; i >= 0 && left > 0; i--) {
    const took = timeDeltas[i]!;
    left -= took;
    if (byId.get(samples[i]!)?.callFrame.functionName === '(idle)') continue;
    const stage = stageOf(samples[i]!);
    spent.set(stage, (spent.get(stage) ?? 0) + took);
    all += took;
  }
  return Object.fromEntries(
    [...spent].sort((a, b) => b[1] - a[1]).map(([stage, took]) => [stage, took / all]),
  );
}

const WARM_UP = 4;
const SECONDS = 5;

/** Starts our program from its source, whose functions say where they belong, and profiles it. */
export async function profileStages(subjects: Subjects): Promise<Record<string, number>> {
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-profile-'));
  try {
    const subject = await subjects.fresh('source', {
      execArgv: ['--cpu-prof', `--cpu-prof-dir=${directory}`],
    });
    await cpuPerEvent(subject.target, subject.pid as number, WARM_UP);
    await cpuPerEvent(subject.target, subject.pid as number, SECONDS);
    await subject.stop();
    const [file] = readdirSync(directory);
    return stagesIn(JSON.parse(readFileSync(join(directory, file as string), 'utf8')), 1000 * SECONDS);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
