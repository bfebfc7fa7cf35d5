import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Deadline, every, pause, systemClock } from '../lib/clock.ts';
import { createFakeClock, settle } from './support/remote/fake-clock.ts';

function run(program: string) {
  return spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: join(import.meta.dirname, '..'),
    encoding: 'utf8',
    timeout: 20_000,
  });
}

describe('system clock', () => {
  it('keeps the process alive only for timers of the kind "waiting"', () => {
    const { stdout, status } = run(`
      const { systemClock } = await import('./lib/clock.ts');
      systemClock.after(60_000, () => console.log('never'));
      systemClock.after(50, () => console.log('waited'), 'waiting');`);
    assert.deepEqual([status, stdout], [0, 'waited\n']);
  });

  it('has a monotonic time that is the same in other processes of this machine', () => {
    const before = systemClock.monotonic();
    const { stdout } = run(`
      const { systemClock } = await import('./lib/clock.ts');
      console.log(systemClock.monotonic());`);
    const theirs = Number(stdout);
    assert.ok(before <= theirs && theirs <= systemClock.monotonic(), `${before}, ${stdout}`);
  });

  it('returns its monotonic time in whole milliseconds', (t) => {
    t.mock.method(process, 'hrtime', () => [86_400, 999_999]);
    assert.equal(systemClock.monotonic(), 86_400_000);
  });

  it('runs a timer once, and a cancelled timer never', async () => {
    let runs = 0;
    systemClock.after(10, () => runs++, 'waiting');
    systemClock.after(10, () => runs++, 'waiting')();
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(runs, 1);
  });

  it('runs no timer early', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    let runs = 0;
    systemClock.after(1000, () => runs++);
    t.mock.timers.tick(999);
    assert.equal(runs, 0);
    t.mock.timers.tick(1);
    assert.equal(runs, 1);
  });
});

describe('every', () => {
  it('runs again and again until it is ended, which a run may do itself, and keeps no process alive', async () => {
    const clock = createFakeClock();
    let runs = 0;
    const end = every(clock, 1000, () => {
      runs += 1;
      if (runs === 3) end();
    });
    await clock.advance(999);
    assert.equal(runs, 0);
    await clock.advance(1001);
    assert.deepEqual([runs, clock.timers()], [2, { all: 1, waiting: 0 }]);
    await clock.advance(9000);
    assert.deepEqual([runs, clock.timers().all], [3, 0]);
  });
});

describe('pause', () => {
  it('ends in time, or with the reason of its signal, and leaves no timer', async () => {
    const clock = createFakeClock();
    const abort = new AbortController();
    let done = false;
    pause(clock, 1000, abort.signal).then(() => {
      done = true;
    });
    await clock.advance(999);
    assert.equal(done, false);
    await clock.advance(1);
    assert.equal(done, true);
    const cut = assert.rejects(pause(clock, 1000, abort.signal), /enough/);
    abort.abort(new Error('enough'));
    await cut;
    await assert.rejects(pause(clock, 1000, abort.signal), /enough/);
    await settle();
    assert.equal(clock.timers().all, 0);
  });
});

describe('a session on the system clock', () => {
  it('lets the process end once no request waits, whether or not it was closed', () => {
    for (const close of ['session.close();', '']) {
      const { stdout, stderr, status } = run(`
        const { systemClock } = await import('./lib/clock.ts');
        const { createSession } = await import('./lib/session/session.ts');
        const session = createSession({
          clock: systemClock,
          roots: { snp: {}, tdx: undefined },
          collateral: {},
          manifestLog: {},
          manifests: { kind: 'managed', newest: async () => { throw new Error('offline'); } },
          control: {},
          random: Math.random,
          observe() {},
        });
        session.updateConfiguredKey('key');
        await session.acquire({ timeoutMs: 100 }).catch(({ code }) => console.log(code));
        ${close}`);
      assert.deepEqual([status, stdout, stderr], [0, 'not_ready\n', '']);
    }
  });
});

describe('a deadline', () => {
  function scene() {
    const clock = createFakeClock();
    let calls = 0;
    const late = (): void => {
      calls += 1;
    };
    const deadline = new Deadline(clock).wait(1_000, late);
    return { clock, deadline, late, calls: () => calls };
  }

  it('calls once its time is over, and once only', async () => {
    const { clock, calls } = scene();
    await clock.advance(999);
    assert.equal(calls(), 0);
    await clock.advance(1);
    assert.equal(calls(), 1);
    await clock.advance(10_000);
    assert.deepEqual([calls(), clock.timers().all], [1, 0]);
  });

  it('begins anew when it is refreshed, and with a shorter or a longer wait', async () => {
    const { clock, deadline, late, calls } = scene();
    await clock.advance(900);
    deadline.refresh();
    await clock.advance(900);
    deadline.wait(5_000, late);
    await clock.advance(4_900);
    deadline.wait(100, late);
    await clock.advance(99);
    assert.equal(calls(), 0);
    await clock.advance(1);
    assert.equal(calls(), 1);
  });

  it('sets one timer for waits that follow each other, and calls nobody between them', async () => {
    const { clock, deadline, late, calls } = scene();
    deadline.rest();
    await clock.advance(500);
    assert.equal(clock.timers().all, 1);
    deadline.wait(2_000, late);
    assert.equal(clock.timers().all, 1);
    await clock.advance(1_999);
    assert.equal(calls(), 0);
    await clock.advance(1);
    assert.equal(calls(), 1);
  });

  it('is refreshed by what was waiting to be read when its timer ran', async () => {
    const { clock, deadline, calls } = scene();
    clock.after(1_000, () => deadline.refresh()); // its timer came first, and looks once more
    await clock.advance(1_500);
    assert.equal(calls(), 0);
  });

  it('never calls once it is cancelled', async () => {
    const { clock, deadline, calls } = scene();
    deadline.cancel();
    deadline.refresh();
    await clock.advance(10_000);
    assert.deepEqual([calls(), clock.timers().all], [0, 0]);
  });
});
