/**
 * A reporter of node:test for programs: a line of JSON per test that ended, `["passed", full name]` or
 * `["failed", …]`, whatever the tests themselves write beside it.
 */
import type { TestEvent } from 'node:test/reporters';
import { followNames } from './test-report.ts';

export default async function* namesReporter(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const namesOf = followNames();
  for await (const event of events) {
    const names = namesOf(event);
    const { type, data } = event;
    if (names === undefined || (type !== 'test:pass' && type !== 'test:fail')) continue;
    if (data.details.type === 'suite') continue;
    yield `\n${JSON.stringify([type === 'test:pass' ? 'passed' : 'failed', names.join(' ')])}\n`;
  }
}
