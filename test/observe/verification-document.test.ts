import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { verificationDocument } from '../../lib/observe/verification-document.ts';
import type { Epoch } from '../../lib/session/session.ts';
import type { StateName } from '../../lib/session/standing.ts';
import { standing } from '../support/remote/standing.ts';

describe('the verification document', () => {
  const EPOCH = {
    ...{ secretId: 'of the epoch', manifestSha256: 'aa', verdictSha256: 'bb' },
    ...{ attestedAt: 1, renewAt: 2, expiresAt: 3, key: 'the key of the epoch', jitter: 4 },
  };
  const documentIn = (state: StateName) =>
    verificationDocument(
      {
        current: () => EPOCH as unknown as Epoch,
        standing: () => standing(state),
        lastVerdict: () => undefined,
      },
      { protocol: 'v1', now: 0 },
    );

  it('has an epoch exactly if the proxy is verified: none while it stops, although a secret is in force', () => {
    assert.equal(documentIn('verified').epoch?.secretId, 'of the epoch');
    const { verified, epoch } = documentIn('ended');
    assert.deepEqual([verified, epoch], [false, null]);
  });

  it('has of the epoch only its id, digests and times, and not its key', () => {
    const time = (ms: number): string => `1970-01-01T00:00:00.00${ms}Z`;
    assert.deepEqual(documentIn('verified').epoch, {
      ...{ secretId: 'of the epoch', manifestSha256: 'aa', verdictSha256: 'bb' },
      ...{ attestedAt: time(1), renewAt: time(2), expiresAt: time(3) },
    });
  });
});
