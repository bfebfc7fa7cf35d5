/**
 * Load for minutes: `npm run soak -- [--seconds 300] [--streams 200] [--seed N]`. Hundreds of streams with
 * clients that leave, faults, and a new epoch every few seconds; the proxy runs in a process of its own and
 * is measured at rest after every stretch of load. Exit code 0 if nothing leaks and nothing failed that was
 * not made to.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom, slope } from '../bench/stats.ts';
import { startSimulator } from '../simulator/simulator.ts';
import { createLoad, type Load } from '../test/soak/load.ts';
import type { Measurement } from '../test/soak/proxy-child.ts';
import { temporaryDirectory } from '../test/support/processes/temporary-directory.ts';
import { deploymentFlags } from '../test/support/remote/remote.ts';
import { readOptions } from './options.ts';

/**
 * ms; the service keeps secrets longer than they are used, as the real one does. A measurement holds the
 * proxy for up to 4 s, and on a busy machine a request may take as long: none must outlive its secret for
 * these reasons.
 */
const SECRET_LIFETIME = 30_000;
const TIMES = {
  ...{ secretRenew: 3_000, secretJitter: 500, secretUsable: 9_000 },
  connectTimeout: 60_000, // 200 handshakes at once, on a slow machine too
};
/** ms between two faults of the trust side; a renewal gets over one of them by itself. */
const TRUST_FAULT_EVERY = 7_000;
const TRUST_FAULTS = ['attest-reset', 'secret-reset'] as const;
/** What they lead to in the log. */
const TRUST_FAULT_LOGS = [
  'Attestation or secret exchange failed, trying again',
  'control_api_failed',
  'upstream_reset',
];
/** ms until what ends by itself has ended. */
const AFTER_LOAD = 500;

/** MB a minute that memory may grow by. */
const STEEPEST = 1;
/** The control path keeps its connection for a few seconds, and a renewal may be under way. */
const CONTROL_SOCKETS = 3;
/** Of each class, what those and the next renewal may need. */
const OBJECTS = 16;

const { values } = readOptions(import.meta.filename, {
  options: {
    seconds: { type: 'string', default: '300' },
    streams: { type: 'string', default: '200' },
    seed: { type: 'string', default: '20261121' },
  },
});
const [seconds, streams, seed] = [Number(values.seconds), Number(values.streams), Number(values.seed)];

async function startChild(directory: string, port: number) {
  const flags = [
    ...deploymentFlags(port, directory),
    ...['--port=0', '--api-key=soak', '--first-byte-timeout=10s', '--stream-idle-timeout=6s'],
  ];
  const env = { PATH: process.env['PATH'], SSL_CERT_FILE: join(directory, 'ca.pem') };
  const child = fork(join(import.meta.dirname, '../test/soak/proxy-child.ts'), flags, {
    execArgv: ['--expose-gc', '--no-warnings'], // they are told in the measurement
    serialization: 'advanced',
    env: { ...env, SOAK_TIMES: JSON.stringify(TIMES) },
  });
  const gone = once(child, 'exit').then(([code]) => {
    throw new Error(`the proxy ended with ${code}`);
  });
  gone.catch(() => {});
  const answer = async <T>(): Promise<T> => {
    const [message] = await Promise.race([once(child, 'message'), gone]);
    return message as T;
  };
  const { url } = await answer<{ url: string }>();
  return {
    url,
    measure(what: 'measure' | 'close' = 'measure') {
      child.send(what);
      return answer<Measurement>();
    },
    kill: () => void child.kill('SIGKILL'),
  };
}

/** One measurement at rest, after so many minutes under load. */
type Sample = Measurement & { readonly minutes: number };

/**
 * What is wrong, in words. The first third of the samples warms up: code is compiled, pools and caches fill.
 * `closed` was taken after the proxy had closed.
 */
function faultsOf(samples: readonly Sample[], closed: Measurement, load: Load): string[] {
  const warm = samples.slice(Math.floor(samples.length / 3));
  const [first, last] = [warm[0] as Sample, warm.at(-1) as Sample];
  const steep = slope(warm.map(({ minutes, heapUsed }) => [minutes, heapUsed / 1e6]));
  const { injected, explained } = load;
  const failures = Object.keys(last.counters).filter((name) => name !== 'renewals');
  const counted = [...new Set([...injected.keys(), ...failures])];
  const allowed: readonly (readonly [what: string, found: number, most: number])[] = [
    ['MB of heap more a minute', steep, STEEPEST],
    ['requests in flight at rest', Math.max(...samples.map(({ inFlight }) => inFlight)), 0],
    [
      'sockets at rest',
      Math.max(...samples.map(({ resources }) => resources['TCPSocketWrap'] ?? 0)),
      CONTROL_SOCKETS,
    ],
    ['timers at rest', last.resources['Timeout'] ?? 0, first.resources['Timeout'] ?? 0],
    ['listeners on the process', last.listeners, first.listeners],
    ...Object.entries(last.objects).map(
      ([name, count]) => [`${name} objects at rest`, count, (first.objects[name] ?? 0) + OBJECTS] as const,
    ),
  ];
  return [
    ...load.unexplained,
    ...last.warnings,
    ...[...last.logged].filter((label) => !explained.has(label)).map((label) => `logged: ${label}`),
    ...counted
      .map((name) => [name, last.counters[name] ?? 0, injected.get(name) ?? 0] as const)
      .filter(([, found, wanted]) => found !== wanted)
      .map(([name, found, wanted]) => `${name}: ${found} instead of ${wanted}`),
    ...allowed
      .filter(([, found, most]) => found > most)
      .map(([what, found, most]) => `${what}: ${found}, at most ${most}`),
    ...Object.entries(closed.resources)
      .filter(([kind]) => kind !== 'PipeWrap')
      .map(([kind, count]) => `left after closing: ${count} ${kind}`),
  ];
}

const directory = temporaryDirectory('privatemode-soak-');
const simulator = await startSimulator({
  directory,
  secretLifetime: SECRET_LIFETIME,
  recorded: 0,
});
const child = await startChild(directory, simulator.port);
const random = seededRandom(seed + 1);
const weather = setInterval(
  () => simulator.faults.set(TRUST_FAULTS[Math.floor(random() * TRUST_FAULTS.length)]!, 1),
  TRUST_FAULT_EVERY,
);
try {
  console.log(`${streams} streams for ${seconds} s, seed ${seed}, an epoch every ${TIMES.secretRenew} ms`);
  const load = createLoad(child.url, streams, seed);
  for (const line of TRUST_FAULT_LOGS) load.explained.add(line);
  const samples: Sample[] = [];
  const stretches = Math.max(Math.min(Math.round(seconds / 12), 20), 4);
  for (let i = 1; i <= stretches; i++) {
    await load.run((seconds * 1000) / stretches);
    // How many connections the pool has at a moment is chance, and each takes memory.
    simulator.closeIdleConnections();
    await delay(AFTER_LOAD);
    const sample = { ...(await child.measure()), minutes: (seconds * i) / stretches / 60 };
    samples.push(sample);
    const megabytes = [sample.heapUsed, sample.rss].map((bytes) => (bytes / 1e6).toFixed(1));
    console.log(`${sample.minutes.toFixed(2)} min: heap ${megabytes[0]} MB, resident ${megabytes[1]} MB`);
  }
  clearInterval(weather);
  const closed = await child.measure('close');
  load.unexplained.push(...simulator.exchanges.violations().map(String));
  const faults = faultsOf(samples, closed, load);
  const { requests, complete, left } = load;
  console.log(
    `${requests} requests: ${complete} answered whole, ${left} left by their clients, ${load.faults} faults that ended as they should, ${samples.at(-1)?.counters['renewals']} epochs`,
  );
  for (const line of faults.slice(0, 30)) console.log(`FAILED  ${line}`);
  console.log(faults.length === 0 ? 'verdict: good' : 'verdict: FAILED');
  process.exitCode = faults.length === 0 ? 0 : 1;
} finally {
  clearInterval(weather);
  child.kill();
  await simulator.close();
}
