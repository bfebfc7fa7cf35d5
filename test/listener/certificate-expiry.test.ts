/** When certificates are warned of, and which of several. */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { firstToEnd, noteExpiry } from '../../lib/listener/certificate-expiry.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const DAY = 86_400_000;
const ENDS = new Date('2027-03-15T10:00:00Z');

describe('the expiry of a certificate', () => {
  it('gives a warning in the last 14 days and a critical condition afterwards, and neither after a renewal', () => {
    const { log, lines } = recordingLogger();
    const conditions = createConditions({ log, clock: systemClock });
    const seen = (left: number, ends = ENDS): string | undefined => {
      const facts = { path: 'tls.crt', subject: 'CN=gateway.example', ends };
      noteExpiry(conditions, 'tls_certificate_expiry', facts, createFakeClock(ENDS.getTime() - left));
      const [condition] = conditions.list();
      return condition && `${condition.severity}: ${condition.message}`;
    };
    const of = 'The TLS certificate must be renewed: the certificate of CN=gateway.example in tls.crt';
    assert.equal(seen(14 * DAY + 1), undefined);
    assert.equal(seen(14 * DAY), `warning: ${of} expires on 2027-03-15 10:00 UTC`);
    assert.equal(seen(1), `warning: ${of} expires on 2027-03-15 10:00 UTC`);
    assert.equal(seen(0), `critical: ${of} expired on 2027-03-15 10:00 UTC`);
    assert.equal(seen(-370 * DAY), `critical: ${of} expired on 2027-03-15 10:00 UTC`);
    assert.equal(seen(0, new Date(ENDS.getTime() + 90 * DAY)), undefined);
    assert.deepEqual(
      lines.map(({ level }) => level),
      ['WARN', 'ERROR', 'INFO'],
    );
  });

  it('is the earliest one in the certificate chain', () => {
    const authority = createTestAuthority('test');
    const { cert } = authority.issue(['gateway.example']);
    const blocks = [cert, authority.pem].map((pem) => new X509Certificate(pem));
    const ends = Math.min(...blocks.map(({ validToDate }) => validToDate.getTime()));
    for (const pem of [`${cert}\n${authority.pem}`, `${authority.pem}\n${cert}`])
      assert.equal(firstToEnd(pem).ends.getTime(), ends);
    assert.match(firstToEnd(cert).subject, /gateway\.example|test/);
  });
});
