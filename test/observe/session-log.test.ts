import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { createLogger, statusLine } from '../../lib/observe/log.ts';
import { noteStanding, reportStart } from '../../lib/observe/session-log.ts';
import type { SessionEvent } from '../../lib/session/events.ts';
import type { StateName } from '../../lib/session/standing.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { standing } from '../support/remote/standing.ts';

const STEP: SessionEvent = { type: 'step', message: 'Waiting for the evidence of the service' };
const EPOCH: SessionEvent = {
  type: 'epoch',
  message: 'Secret updated successfully',
  secretId: 'secret-1',
  manifestSha256: 'ab12',
  expiresAt: 0,
};
const ATTESTED = {
  type: 'attested',
  message: 'Coordinator manifest fetched successfully',
  verdict: { manifestSha256: 'ab12', tee: 'snp' },
} as SessionEvent;

function scene() {
  const lines: Record<string, unknown>[] = [];
  const output = { write: (line: string) => lines.push(JSON.parse(line)) };
  const log = createLogger({ format: 'json', level: 30, output });
  return { lines, report: reportStart({ log }) };
}

describe('the log line that says ready', () => {
  const READY = {
    level: 'INFO',
    msg: 'Ready: the remote is verified. Base URLs for clients:',
    openai: 'http://localhost:8080/v1',
    anthropic: 'http://localhost:8080',
    manifestSha256: 'ab12',
    tee: 'snp',
  };
  const withoutTime = ({ time: _, ...rest }: Record<string, unknown>): object => rest;

  it('comes once, when the remote is verified and the port is open, whichever is last', () => {
    for (const order of ['verified first', 'listening first']) {
      const { lines, report } = scene();
      const listen = (): void => report.listening('http://0.0.0.0:8080', { awaitsKey: false });
      if (order === 'listening first') listen();
      for (const event of [STEP, ATTESTED, EPOCH]) report.observe(event);
      if (order === 'verified first') {
        assert.deepEqual(lines, []);
        listen();
      }
      for (const event of [STEP, ATTESTED, EPOCH]) report.observe(event);
      assert.deepEqual(lines.map(withoutTime), [READY], order);
      report.close();
    }
  });

  it('is announced where a client has to bring the key', () => {
    const { lines, report } = scene();
    report.listening('https://[::]:8443', { awaitsKey: true });
    assert.deepEqual(lines.map(withoutTime), [
      {
        level: 'INFO',
        msg: 'Waiting for the first request with an API key, to verify the remote with it. Base URLs for clients:',
        openai: 'https://localhost:8443/v1',
        anthropic: 'https://localhost:8443',
      },
    ]);
    report.close();
  });
});

describe('the line that says what a start waits for', () => {
  it('comes after three seconds, once', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const { lines, report } = scene();
      report.observe({ type: 'step', message: 'Waiting for the manifest' });
      report.observe(STEP);
      mock.timers.tick(2_999);
      assert.deepEqual(lines, []);
      mock.timers.tick(1);
      mock.timers.tick(60_000);
      assert.deepEqual(
        lines.map(({ msg }) => msg),
        ['Still starting: Waiting for the evidence of the service'],
      );
      report.close();
    } finally {
      mock.timers.reset();
    }
  });

  it('does not come where the remote is verified sooner', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const { lines, report } = scene();
      for (const event of [STEP, ATTESTED, EPOCH]) report.observe(event);
      mock.timers.tick(60_000);
      assert.deepEqual(lines, []);
    } finally {
      mock.timers.reset();
    }
  });

  it('changes in its place on a terminal, with log lines above it', () => {
    let screen = '';
    const terminal = { isTTY: true, columns: 20, write: (text: string) => (screen += text) };
    const line = statusLine(terminal);
    line?.show('Waiting … 3 s');
    line?.write('a log line\n');
    line?.show('Waiting for something long');
    line?.show(undefined);
    line?.write('done\n');
    const erase = '\r\u001b[K';
    assert.equal(
      screen,
      `Waiting … 3 s${erase}a log line\nWaiting … 3 s${erase}Waiting for somethi${erase}done\n`,
    );
  });

  it('is whole on a terminal that does not know its size', () => {
    let screen = '';
    statusLine({ isTTY: true, columns: 0, write: (text: string) => (screen += text) })?.show('Waiting … 3 s');
    assert.equal(screen, 'Waiting … 3 s');
  });

  it('does not change in its place where there is no terminal', () => {
    assert.equal(statusLine({ write: () => true }), undefined);
  });
});

describe('the state of the session among the conditions', () => {
  const EXPECTED: Readonly<Record<StateName, string | undefined>> = {
    ended: undefined,
    verified: undefined,
    'not-renewable': 'renewal_fails warning',
    'manifest-not-understood': 'manifest_unusable critical',
    rejected: 'service_rejected critical',
    'rejected-once': 'service_rejected warning',
    'key-refused': 'key_refused critical',
    'client-too-old': 'client_too_old critical',
    unreachable: 'service_unreachable critical',
    'awaiting-key': undefined,
    starting: undefined,
  };

  it('is one at a time, with the error and its remedy, and is over in the next state', () => {
    const { log } = recordingLogger();
    const conditions = createConditions({ log });
    const error = new PrivatemodeError('upstream_unreachable', 'no route', { remedy: 'Repair the route.' });
    for (const [state, expected] of Object.entries(EXPECTED)) {
      noteStanding(conditions, standing(state as StateName, error));
      const found = conditions.list();
      assert.deepEqual(
        found.map(({ id, severity }) => `${id} ${severity}`),
        expected === undefined ? [] : [expected],
        state,
      );
      for (const { message, remedy } of found) {
        assert.match(message, /: upstream_unreachable: no route$/);
        assert.equal(remedy, 'Repair the route.');
      }
    }
  });
});
