/**
 * What became of tests, by the events of node:test. A test that is skipped for a reason that its run does not
 * allow has failed, and so has a file in which no test passed: neither has proved anything.
 */
import { relative } from 'node:path';
import type { TestEvent } from 'node:test/reporters';

/**
 * Follows events. For that of a test or suite that ended, gives its full name: the names of the suites around
 * it, and its own.
 */
export function followNames(): (event: TestEvent) => readonly string[] | undefined {
  const path: string[] = [];
  return ({ type, data }) => {
    if (type === 'test:start') path.splice(data.nesting, Number.POSITIVE_INFINITY, data.name);
    const hasEnded = type === 'test:pass' || type === 'test:fail';
    return hasEnded ? [...path.slice(0, data.nesting), data.name] : undefined;
  };
}

/**
 * What the machine lacks: in the reason for a skip, and in what test/support/processes/foreign-programs.ts
 * writes.
 */
const LACKS = /NOT CHECKED: ([^\n#]+?) *(?:#|$)/g;

/** Adds up all runs whose events it passes on. */
export class TestReport {
  passed = 0;
  skipped = 0;
  /** The file of each, and its full name. */
  readonly failures: string[] = [];
  /** What the machine lacks. */
  readonly missing = new Set<string>();

  /**
   * `files` are those of the run, below `root`; `label` is what failures say behind them. `maySkip`: whether
   * a test may be skipped for this reason, where the machine lacks nothing.
   */
  async *follow(
    events: AsyncIterable<TestEvent>,
    root: string,
    files: readonly string[],
    label: string,
    maySkip: (reason: string) => boolean,
  ): AsyncGenerator<TestEvent> {
    const namesOf = followNames();
    /** Files of which a test passed or failed, or that said what they lack. */
    const accounted = new Set<string>();
    const fails = (file: string, what: string): unknown =>
      this.failures.push(`${[file, label].filter(Boolean).join(' ')}: ${what}`);
    const lacks = (file: string, text: string): boolean => {
      const found = [...text.matchAll(LACKS)].map(([, what = '']) => this.missing.add(what));
      if (found.length > 0) accounted.add(file);
      return found.length > 0;
    };
    for await (const event of events) {
      yield event;
      const { type, data } = event;
      if (type === 'test:stderr') lacks(relative(root, data.file), data.message);
      const names = namesOf(event);
      if (names === undefined || (type !== 'test:pass' && type !== 'test:fail')) continue;
      // The event of a whole file has no entry: where it passes, there was no test; where it fails, the
      // process did.
      const isFile = data.entryFile === undefined;
      const entry = relative(root, data.entryFile ?? data.file ?? '');
      // What shares a process is named by its file (test/together.ts).
      const shares = !files.includes(entry) && !isFile;
      const [file = '', ...rest] = shares ? names : [entry, ...names];
      const name = isFile ? 'the process failed' : rest.join(': ') || 'it cannot be loaded, or a hook failed';
      const reason = data.skip ?? data.todo;
      if (reason !== undefined) {
        if (lacks(file, String(reason)) || maySkip(String(reason))) this.skipped += 1;
        else fails(file, `${name} (skipped: ${reason})`);
      } else if (type === 'test:fail') {
        accounted.add(file);
        // A test fails with its subtests, which are named themselves.
        const { failureType } = data.details.error as { failureType?: string };
        if (failureType !== 'subtestsFailed') fails(file, name);
      } else if (!isFile && data.details.type !== 'suite') {
        accounted.add(file);
        this.passed += 1;
      }
    }
    for (const file of files) if (!accounted.has(file)) fails(file, 'no test passed');
  }
}
