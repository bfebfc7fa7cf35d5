/** The clock of this machine is wrong, or that of the service: the log says so, in whichever direction. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { startProxyProcess } from '../support/proxy-process.ts';
import { type Remote, startRemote } from '../support/remote.ts';

const HOUR = 3_600_000;
const YEAR = 365 * 24 * HOUR;

describe('a clock that is wrong', { timeout: 120_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  const cases: [name: string, skew: number, reason: RegExp][] = [
    [
      'hours behind that of the service',
      26 * HOUR,
      /mesh\.certificate\.validity: .*, not valid yet at \d{4}-\S+: the local clock is probably behind\)"/,
    ],
    [
      'hours after the end of the certificates',
      -YEAR - 26 * HOUR,
      /mesh\.certificate\.validity: .*, over at \d{4}-\S+\)"/,
    ],
  ];
  for (const [name, skew, reason] of cases) {
    it(`says to check it: ${name}`, async () => {
      remote.simulator.setClockSkew(skew);
      const proxy = await startProxyProcess([...remote.flags, '--port=0'], { ...remote.env });
      try {
        const failed = (): string | undefined =>
          proxy
            .log()
            .split('\n')
            .find((line) => line.includes('level=ERROR'));
        while (failed() === undefined) await once(proxy.process.stderr as NodeJS.ReadableStream, 'data');
        const line = failed() as string;
        assert.match(line, reason);
        assert.match(
          line,
          / remedy="Check the clock of this machine first; if it is right, do not trust the remote and report this\."$/,
        );
        assert.doesNotMatch(line, /SSL_CERT_FILE/);
      } finally {
        await proxy.stop('SIGKILL');
      }
    });
  }
});
