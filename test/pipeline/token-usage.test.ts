/** The tokens that a response says it took: known to the proxy even where the client did not ask for them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { type TokenUsage, tokenUsage } from '../../lib/pipeline/decrypter.ts';
import { ASKED, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { sealedStream } from '../support/remote/sealed-stream.ts';

describe('the usage of a stream', () => {
  const messages = (started: object, delta: object): TokenUsage | undefined => {
    const stream = sealedStream(['id', 'type', 'usage']);
    const opener = new EventDecrypter({ id: 'messages' }, fixedCipher(), ASKED);
    for (const event of [
      { type: 'message_start', message: { id: 'm1', content: [], model: 'm', usage: started } },
      { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: delta },
    ]) {
      opener.feed(Buffer.from(stream.event(event, event.type)));
    }
    assert.equal(opener.failure, undefined);
    return opener.usage;
  };

  it('has its input from message_start and its output from message_delta, or all of it, in the messages API', () => {
    const cache = { cache_read_input_tokens: 4, cache_creation_input_tokens: 1 };
    for (const [started, delta] of [
      [{ input_tokens: 2, ...cache, output_tokens: 0 }, { output_tokens: 9 }],
      [
        { input_tokens: 7, output_tokens: 0 },
        { input_tokens: 2, ...cache, output_tokens: 9 },
      ],
    ] as const)
      assert.deepEqual(messages(started, delta), { prompt: 7, completion: 9, cached: 4 });
  });
});

describe('counts of tokens', () => {
  const cases: [text: string, prompt: number | undefined, completion: number | undefined, cached?: number][] =
    [
      ['{"prompt_tokens":1,"completion_tokens":2}', 1, 2],
      ['{"input_tokens":1,"output_tokens":2}', 1, 2],
      ['{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}', 9, undefined, 0],
      ['{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":10}}', 9, undefined],
      ['{"input_tokens":9,"cache_read_input_tokens":30}', 39, undefined, 30],
      ['{"input_tokens":9,"cache_read_input_tokens":30,"cache_creation_input_tokens":2}', 41, undefined, 30],
      ['{"input_tokens":9,"cache_read_input_tokens":null,"cache_creation_input_tokens":2}', 11, undefined],
      ['{"input_tokens":0,"cache_read_input_tokens":-1,"output_tokens":1}', 0, 1],
      ['{"cache_read_input_tokens":30}', undefined, undefined],
      ['{"prompt_tokens":1000000001,"completion_tokens":1000000000}', undefined, 1_000_000_000],
      ['{"prompt_tokens":-1,"completion_tokens":1.5}', undefined, undefined],
      ['{"prompt_tokens":1e400,"completion_tokens":[2]}', undefined, undefined],
      ['{"__proto__":{"prompt_tokens":1},"constructor":2}', undefined, undefined],
      ['null', undefined, undefined],
    ];

  it('keep the earlier value of each count that a later text does not repeat', () => {
    const earlier = { prompt: 7, completion: 8, cached: 6 };
    for (const [text, prompt, completion, cached] of [
      ['{"prompt_tokens":1,"completion_tokens":2}', 1, 2, undefined],
      ['{"prompt_tokens":1}', 1, 8, undefined],
      ['{"output_tokens":2}', 7, 2, 6],
      ['{"prompt_tokens":-1,"completion_tokens":null}', 7, 8, 6],
      ['{"prompt_tokens":0,"completion_tokens":0}', 0, 0, undefined],
      ['{"cache_read_input_tokens":1}', 7, 8, 6],
      ['{}', 7, 8, 6],
      ['null', 7, 8, 6],
      ['[1]', 7, 8, 6],
    ] as const) {
      assert.deepEqual(tokenUsage(JSON.parse(text), earlier), { prompt, completion, cached }, text);
    }
  });

  for (const [text, prompt, completion, cached] of cases) {
    it(`are ${prompt ?? 'unknown'} in and ${completion ?? 'unknown'} out for ${text}`, () => {
      const none = prompt === undefined && completion === undefined;
      assert.deepEqual(tokenUsage(JSON.parse(text)), none ? undefined : { prompt, completion, cached });
    });
  }
});
