/**
 * How the times of lib/times.ts relate to each other, to Node, undici and the files of deploy/, and that
 * nothing but a clock of a test changes them.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { FLAGS } from '../lib/config/flags.ts';
import { TIMES } from '../lib/times.ts';
import { configOf } from './support/doors/config.ts';

const ROOT = join(import.meta.dirname, '..');
const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const t = TIMES;

/** The number that a file has in this place, in ms. */
function secondsIn(path: string, place: RegExp): number {
  const found = place.exec(textOf(path))?.[1];
  assert.ok(found !== undefined, `${path} has no ${place}`);
  return Number(found) * 1_000;
}

const node = createServer();
/** The defaults of undici, which its client is made with. */
const UNDICI = { headers: 300_000, body: 300_000 };
const { shutdownGrace } = configOf('--api-key=k');
const MINUTE = 60_000;

/** The service forgets a secret after an hour (docs/protocol/inference.md 10). */
const SECRET_KEPT = 3_600_000;

/** Each of these is at most as long as the next: `[times, why]`. */
const IN_ORDER: readonly (readonly [times: readonly number[], why: string])[] = [
  [[2 * t.confirmAfter, t.epochWait], 'a request that waits learns that the service is refused'],
  [[t.refusedWait, t.confirmAfter], 'a request under a refusal does not wait for a second attempt'],
  [[t.deniedPause, t.deniedWait], 'a request that is denied in the pause still gets the renewal after it'],
  [[t.controlTimeout, t.epochWait], 'a request waits until one slow call is over'],
  [
    [t.firstBackoff, t.longestBackoff, t.secretUsable - t.secretRenew],
    'a renewal is tried many times before the secret ends',
  ],
  [
    [t.secretRenew, t.secretUsable, SECRET_KEPT],
    'a secret is renewed while it is good, and not used once the service has forgotten it',
  ],
  [[t.secretJitter, t.secretRenew / 2], 'the random part leaves most of the term'],
  [
    [t.alarmLook, SECRET_KEPT - t.secretUsable],
    'a clock that jumped is noticed before the service forgets the secret',
  ],
  [
    [t.collateralAgainTimeout, t.collateralTimeout, t.epochWait],
    'a second try is shorter, and both end while requests wait',
  ],
  [[t.usualPause, t.longestPause], 'a host that names no pause gets none that is too long'],
  [[t.connectTimeout, t.controlTimeout, UNDICI.headers], 'the error names the step that took too long'],
  [[t.manifestTimeout, UNDICI.body], 'this program, and not undici, ends a slow manifest'],

  [[t.warmLook, t.warmPause, t.warmRenew], 'a connection is replaced in time'],
  [[t.keepAliveProbe, t.warmRenew + t.warmLook, MINUTE], 'docs/configuration.md: idle for less than 60 s'],

  [[t.headLook, t.headTimeout, node.headersTimeout], 'a late head is found, sooner than by Node'],
  [[node.keepAliveTimeout, MINUTE, t.keepAliveTimeout], 'load balancers keep idle connections for 60 s'],
  [[node.keepAliveTimeout, t.relayKeepAlive], 'an agent that thinks for a while keeps its connection'],
  [[t.firstRequest, t.farewell], 'a request may still come while the last responses end'],
  [[t.certificateLook, t.expirySoon], 'an expiry is told in time'],

  [[2 * t.farewell, t.stopMargin], 'the gateway drains before the program ends itself'],
  [[t.managerTimeout, t.stopMargin], 'a message to the service manager does not end in SIGKILL'],
  [[t.lastWork, t.stopMargin], 'a second signal shortens the end'],
  [[t.startLook, t.startPatience], 'the first line says the time so far'],

  [[2 * t.clientsFileLook, 1_000], 'docs: a client is refused within a second'],
  [
    [t.clientsInForceLook, t.clientsFileLook, t.clientsInForceWait / 4],
    'the command asks as often as the proxy reads the file, several times',
  ],

  [[t.storeReply, t.storeConnect, t.placeWait], 'a store that is away is told sooner than a full queue'],
  [[t.storeFirstRetry, t.storeLongestRetry], 'a backoff grows'],
  [[t.storeLook + t.storeReply, t.storeSilence], 'a connection that is in use is not given up as silent'],
  [
    [t.storeLook + t.storeReply + t.storeLongestRetry + t.storeConnect, t.storeLease],
    'a renewal that fails, and a new connection after it, fit into a lease',
  ],

  [[t.epochWait, t.serviceModelsTimeout], 'the list of models waits for the verification'],
  [
    [t.healthcheckTimeout, secondsIn('Dockerfile', /^HEALTHCHECK .*--timeout=(\d+)s/m)],
    'the health check says why before Docker ends it',
  ],
  [
    [
      shutdownGrace + t.stopMargin,
      secondsIn('deploy/systemd/privatemode-proxy.service', /^TimeoutStopSec=(\d+)s$/m),
    ],
    'systemd waits for the grace and the margin',
  ],
  [
    [
      t.stopMargin,
      secondsIn('deploy/chart/templates/deployment.yaml', /Seconds: .*GraceSeconds\) (\d+) \}\}/),
    ],
    'Kubernetes waits for the grace and the margin',
  ],
];

/** Rows that a header, a message or a page tells in seconds. */
const IN_SECONDS: readonly (keyof typeof TIMES)[] = [
  ...(['epochWait', 'deniedWait', 'controlTimeout', 'manifestTimeout', 'collateralTimeout'] as const),
  ...(['collateralAgainTimeout', 'usualPause', 'longestPause', 'keepAliveTimeout', 'stopMargin'] as const),
  ...(['diskPatience', 'clientsInForceWait', 'placeWait'] as const),
];

describe('the times of the product', () => {
  it('are whole ms that a timer can wait for, and whole seconds where they are told in seconds', () => {
    for (const [name, ms] of Object.entries(TIMES))
      assert.ok(Number.isInteger(ms) && ms > 0 && ms < 2 ** 31, `${name}: ${ms}`);
    for (const name of IN_SECONDS) assert.equal(TIMES[name] % 1_000, 0, name);
    assert.equal(TIMES.trafficSample, 1_000, 'the traffic is counted by the second');
  });

  it('fit to each other, to Node and undici, and to the files of deploy/', () => {
    for (const [times, why] of IN_ORDER)
      for (const [i, ms] of times.slice(1).entries())
        assert.ok(times[i]! <= ms, `${times.join(' ≤ ')}: ${why}`);
    const client = textOf('node_modules/undici/lib/dispatcher/client.js');
    assert.match(client, /headersTimeout : 300e3\b/);
    assert.match(client, /bodyTimeout : 300e3\b/);
  });
});

describe('a program that a test starts with other times', () => {
  const ending = (times: object): string => {
    const program = join(ROOT, 'test/support/processes/scaled-program.ts');
    const env = { ...process.env, TEST_TIMES: JSON.stringify(times) };
    return spawnSync(process.execPath, [program, '--version'], { env, encoding: 'utf8' }).stderr;
  };

  it('does not start with an unknown row, or with a wait that a busy machine would not keep', () => {
    assert.match(ending({ stopMargins: 1_000 }), /no row stopMargins/);
    assert.match(ending({ stopMargin: 249 }), /stopMargin: at least 250 ms/);
    assert.equal(ending({ stopMargin: 250, turn: TIMES.turn }), '');
  });
});

describe('no flag and no variable changes a time, because', () => {
  const files = readdirSync(join(ROOT, 'lib'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => [name, textOf(`lib/${name}`)] as const);
  const holding = (pattern: RegExp): string[] =>
    files.filter(([, text]) => pattern.test(text)).map(([name]) => name);

  it('the rows are frozen, and no flag has the name of one', () => {
    assert.ok(Object.isFrozen(TIMES));
    const names = FLAGS.map(({ name }) => name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase()));
    assert.deepEqual(
      names.filter((name) => Object.hasOwn(TIMES, name)),
      [],
    );
  });

  it('only lib/clock.ts makes a clock, and it reads no setting', () => {
    assert.deepEqual(holding(/\bclockWith\(/), ['clock.ts']);
    // The library for other runtimes has a clock without Node, and the same rows.
    assert.deepEqual(holding(/^import (?!type)[^;]*'\.+\/times\.ts';/m), [
      'clock.ts',
      'client-library/clock.ts',
    ]);
    assert.doesNotMatch(textOf('lib/clock.ts') + textOf('lib/times.ts'), /\b(?:env|argv)\b/);
    for (const name of readdirSync(join(ROOT, 'bin')))
      assert.doesNotMatch(textOf(`bin/${name}`), /\bclockWith\b/, name);
  });

  it('the code that reads flags and variables has no clock of its own', () => {
    const imports = holding(/^import (?!type)[^;]*'\.\.\/clock\.ts';/m);
    assert.deepEqual(
      imports.filter((name) => name.startsWith('config/')),
      [],
    );
  });

  it('every wait is a row: no number of ms stands beside a timer', () => {
    assert.deepEqual(
      holding(
        /\b(?:setTimeout|setInterval|every|pause|deadline|after|timeout)\((?:[^()\n]*, *)?\d[\d_]+[,)]/,
      ),
      [],
    );
    // Those that wait for nothing but their next turn are left out.
    const TIMER = /\b(?:setTimeout|setInterval|AbortSignal\.timeout)\((?![^()]*, 0\))|'node:timers/;
    assert.deepEqual(holding(TIMER).sort(), ['client-library/clock.ts', 'clock.ts']);
  });
});
