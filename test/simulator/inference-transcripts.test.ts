/** Scripted answers from a file. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createModel } from '../../simulator/inference/model.ts';
import { membersOf, startInference } from '../support/inference-server.ts';
import { PLAIN } from '../support/literal-client.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('scripted transcripts', () => {
  const directory = temporaryDirectory('transcripts-');
  const path = join(directory, 'transcripts.json');

  it('replays events with their delays and names, and whole answers', async () => {
    writeFileSync(
      path,
      JSON.stringify({
        script: {
          events: [
            { data: { id: 'a', choices: [{ delta: { reasoning: 'hm' }, index: 0 }] } },
            { delayMs: 60, event: 'odd', data: { id: 'b', choices: [] } },
            { data: '[DONE]' },
          ],
          unary: { status: 418, body: { id: 'c', choices: [] } },
        },
      }),
    );
    const server = await startInference({ transcripts: path });
    try {
      const started = performance.now();
      const { attempt, answer } = await server.ask('chat', membersOf('chat', 'script', 'x', true));
      assert.ok(performance.now() - started >= 59);
      assert.deepEqual(attempt.openEvents(answer.body.toString(), PLAIN.answer), [
        { data: { id: 'a', choices: [{ delta: { reasoning: 'hm', reasoning_content: 'hm' }, index: 0 }] } },
        { event: 'odd', data: { id: 'b', choices: [] } },
        { data: '[DONE]' },
      ]);
      const whole = await server.ask('chat', membersOf('chat', 'script', 'x', false));
      assert.equal(whole.answer.status, 418);
      assert.deepEqual(whole.attempt.openValue(whole.answer.body.toString(), PLAIN.answer), {
        id: 'c',
        choices: [],
      });
      const other = await server.ask('chat', membersOf('chat', 'sim-1x0', 'x', false));
      assert.equal(other.answer.status, 200);
    } finally {
      await server.close();
    }
  });

  for (const [name, content] of Object.entries({
    'no JSON': '{',
    'no map': '[]',
    'events that are no list': '{"m":{"events":1}}',
    'an event without data': '{"m":{"events":[{"delayMs":1}]}}',
    'a whole answer without a body': '{"m":{"unary":{}}}',
  })) {
    it(`refuses at the start a file with ${name}`, () => {
      writeFileSync(path, content);
      assert.throws(
        () => createModel({ transcripts: path }, Date.now),
        (error: unknown) => error instanceof PrivatemodeError && error.code === 'config_invalid',
      );
    });
  }
});
