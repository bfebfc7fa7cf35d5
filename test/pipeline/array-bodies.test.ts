import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { createBodyDecrypter } from '../../lib/pipeline/decrypt-body.ts';
import { ASKED, EXCHANGE, fixedCipher } from '../support/exchange-fixture.ts';
import { literalSeal } from '../support/literal-envelope.ts';

describe('whole answers that are arrays', () => {
  const element = literalSeal(EXCHANGE, 0, Buffer.alloc(12), Buffer.from('{"text":"x"}'));
  for (const endpoint of ENDPOINTS.filter(({ encrypted }) => encrypted)) {
    const { id } = endpoint;
    it(`${id === 'unstructured' ? 'are opened' : 'are refused'} for ${id}`, () => {
      const opener = createBodyDecrypter(endpoint, fixedCipher(), ASKED);
      opener.feed(Buffer.from(`[${element}]`));
      const text = opener.flush().toString();
      assert.equal(opener.failure?.code, id === 'unstructured' ? undefined : 'response_malformed');
      assert.equal(text, id === 'unstructured' ? '[{"text":"x"}]' : '');
    });
  }
});
