import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SecretKey } from '#crypto';
import {
  chatBody,
  DONE,
  modelOf,
  OPEN_PROTECTION,
  OPEN_SECRET,
  PLAN,
  plainAnswer,
  plainEvents,
  planOf,
  protectionIn,
  sealedAnswer,
  sealedChatBody,
  sealedEvents,
} from '../../bench/fixtures.ts';
import { RequestCipher } from '../../lib/envelope/message-cipher.ts';
import { decryptBody } from '../../lib/pipeline/decrypt-body.ts';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { jsonBody, prepare, sealText } from '../support/remote/sealing.ts';

const secret = { id: OPEN_SECRET.id, key: new SecretKey(Buffer.from(OPEN_SECRET.key)) };
const cipher = () => new RequestCipher(secret, { nonce: OPEN_SECRET.nonce });
const asked = { streaming: true, choices: 1, format: undefined, usage: 'every' } as const;

describe('fixtures of the benchmark', () => {
  it('are streams that the product decrypts to the expected text', () => {
    const opener = new EventDecrypter({ id: 'chat' }, cipher(), asked);
    const wire = Buffer.concat([...sealedEvents(40, OPEN_PROTECTION), Buffer.from(DONE)]);
    const text = Buffer.from(opener.feed(wire)).toString();
    assert.equal(opener.failure, undefined);
    assert.equal(text, plainEvents(40).join('') + DONE);
    assert.equal(opener.events, 41);
  });

  it('are whole answers that the product decrypts to the expected text', async () => {
    const wire = Buffer.from(sealedAnswer(OPEN_PROTECTION));
    const { body } = await decryptBody({ id: 'chat' }, cipher(), asked, wire);
    assert.equal(body.toString(), plainAnswer());
  });

  it('carry the plan of an answer in the name of the model, which is not encrypted', () => {
    const plan = {
      events: 7,
      pace: 20,
      start: 1_763_683_200_123,
      hold: true,
      unary: false,
      again: true,
    };
    assert.deepEqual(planOf(modelOf(plan)), plan);
    assert.deepEqual(planOf(modelOf({})), PLAN);
    assert.equal(planOf('gpt'), undefined);
    assert.equal(planOf('bench/1/x/0/0/0/0'), undefined);
  });

  for (const size of [400, 2_000_000]) {
    it(`are prompts of about ${size} bytes that the product encrypts, with a readable secret id and nonce`, async () => {
      const body = chatBody({ events: 3 }, size);
      assert.ok(body.length >= size && body.length < 1.1 * size + 400, `${body.length}`);
      const prepared = prepare(jsonBody({ salted: true }), body);
      assert.deepEqual(planOf(prepared.model ?? ''), { ...PLAN, events: 3 });
      const sealed = await sealText(prepared, cipher());
      assert.deepEqual(protectionIn(sealed), { secretId: OPEN_SECRET.id, nonce: OPEN_SECRET.nonce });
    });
  }

  it('are encrypted prompts for relays that leave encryption to the client', () => {
    const body = sealedChatBody({ events: 3 }).toString();
    assert.deepEqual(protectionIn(body), { secretId: OPEN_SECRET.id, nonce: OPEN_SECRET.nonce });
    assert.equal(JSON.parse(body).model, modelOf({ events: 3 }));
    assert.equal(protectionIn('{}'), undefined);
  });
});
