/** A reporter of node:test for programs: a line of JSON per test that ended, `["passed", full name]` or `["failed", …]`. */
import type { TestEvent } from 'node:test/reporters';

export default async function* namesReporter(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const path: string[] = [];
  for await (const { type, data } of events) {
    if (type === 'test:start') path.splice(data.nesting, Number.POSITIVE_INFINITY, data.name);
    else if ((type === 'test:pass' || type === 'test:fail') && data.details.type !== 'suite') {
      const name = [...path.slice(0, data.nesting), data.name].join(' ');
      yield `${JSON.stringify([type === 'test:pass' ? 'passed' : 'failed', name])}\n`;
    }
  }
}
