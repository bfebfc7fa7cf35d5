/** A name costs more than its bytes: it is decoded, folded and compared as one string, while everybody waits. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createBodyDecrypter } from '../../lib/pipeline/decrypt-body.ts';
import { ASKED, countingIvs, EXCHANGE, fixedCipher } from '../support/exchange-fixture.ts';
import { literalSealObject } from '../support/literal-envelope.ts';

describe('names of members in a response', () => {
  it('longer than any API has: malformed', { timeout: 60_000 }, () => {
    const message = { index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' };
    const members = Object.entries({
      choices: [message],
      created: 1,
      [`l${'\u00df'.repeat(1024 * 1024)}`]: null,
      model: 'm',
      object: 'chat.completion',
    }).map(([name, value]) => ({ name, writtenName: JSON.stringify(name), raw: JSON.stringify(value) }));
    const body = literalSealObject(EXCHANGE, members, ['id', 'usage'], countingIvs());
    const opener = createBodyDecrypter({ id: 'chat' }, fixedCipher(), ASKED);
    opener.feed(Buffer.from(body));
    do opener.flush();
    while (opener.pending);
    assert.equal(opener.failure?.code, 'response_malformed');
  });
});
