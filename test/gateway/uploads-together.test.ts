/** Large prompts at the same time: they share the memory of their slices, and must not share anything else. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { answerTo, chatBody, gatewayFixture, post, until } from '../support/gateway-fixture.ts';
import type { Scripted } from '../support/scripted-upstream.ts';
import { completion, openedRequest } from '../support/sealed-answers.ts';

const UPLOADS = 36;
const LANES = 9;
/** Beyond one slice of 512 KiB, so that there are some to take turns; no two of the same length. */
const promptOf = (number: number): string => `<${number}>`.repeat(200_000 + 30_000 * (number % 12));

/** Every third client leaves: before the end of its prompt, or while the remote is slow to take it. */
const leaves = (number: number): boolean => number % 3 === 2;

/** Takes the request in with pauses, so that slices wait, and answers what it could open. */
async function answerSlowly(scripted: Scripted, arrived: Map<string, string>): Promise<void> {
  for (let i = 0; i < 3; i++) {
    scripted.pause();
    await delay(4);
    scripted.resume();
    await delay(1);
  }
  const body = await scripted.body();
  const [{ content }] = JSON.parse(openedRequest(body).get('messages')!) as [{ content: string }];
  arrived.set(content.slice(0, content.indexOf('>') + 1), content);
  await scripted.write(completion(body));
}

describe('large prompts at the same time', () => {
  it('arrive each as it was, whatever becomes of the others', { timeout: 60_000 }, async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t, { limits: { maxBodyBytes: 10_000_000 } });
    const arrived = new Map<string, string>();
    upstream.on((scripted) => answerSlowly(scripted, arrived).catch(() => {})); // cut off, by a client that left
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < UPLOADS) {
        const number = next++;
        const asking = client();
        const request = post(chatBody({ messages: [{ role: 'user', content: promptOf(number) }] }));
        if (!leaves(number)) {
          asking.send(request);
          assert.equal((await answerTo(asking)).status, 200, `upload ${number}`);
          continue;
        }
        asking.send(number % 2 === 0 ? request : request.subarray(0, request.length / 2));
        await delay(2 + (number % 7));
        asking.socket.destroy();
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    await until(() => gateway.active() === 0, 'an exchange that never ended');
    for (let number = 0; number < UPLOADS; number++) {
      const name = `<${number}>`;
      if (!leaves(number) || arrived.has(name)) {
        assert.ok(arrived.get(name) === promptOf(number), `prompt ${number} arrived as something else`);
      }
    }
  });
});
