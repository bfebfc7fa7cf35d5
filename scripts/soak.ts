/**
 * Load for minutes: `npm run soak -- [--seconds 300] [--streams 200] [--seed N]`. Hundreds of streams with
 * clients that leave, faults, and a new epoch every few seconds; the proxy runs in a process of its own and
 * is measured at rest after every stretch of load. Exit code 0 if nothing leaks and nothing failed that was
 * not made to.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom } from '../bench/stats.ts';
import { type Simulator, startSimulator } from '../simulator/simulator.ts';
import { type Finding, judge, type Sample } from '../test/soak/judge.ts';
import { createLoad } from '../test/soak/load.ts';
import { createPlan } from '../test/soak/plan.ts';
import type { Measurement } from '../test/soak/proxy-child.ts';
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
/** ms until what ends by itself has ended. */
const AFTER_LOAD = 500;
const TRUST_FAULT_LOGS = 'Attestation or secret exchange failed, trying again';

const { values } = readOptions(import.meta.filename, {
  options: {
    seconds: { type: 'string', default: '300' },
    streams: { type: 'string', default: '200' },
    seed: { type: 'string', default: '20261121' },
  },
});
const options = {
  seconds: Number(values.seconds),
  streams: Number(values.streams),
  seed: Number(values.seed),
};

interface Child {
  readonly url: string;
  measure(what?: 'measure' | 'close'): Promise<Measurement>;
  kill(): void;
}

async function startChild(directory: string, simulator: Simulator): Promise<Child> {
  const flags = [
    `--api-endpoint=localhost:${simulator.port}`,
    `--manifest-path=${join(directory, 'manifest.json')}`,
    `--unsafe-trust-roots=${join(directory, 'roots')}`,
    `--workspace=${join(directory, 'workspace')}`,
    '--listen-address=127.0.0.1',
    '--port=0',
    '--api-key=soak',
    '--first-byte-timeout=20s',
    '--stream-idle-timeout=12s',
  ];
  const child = fork(join(import.meta.dirname, '../test/soak/proxy-child.ts'), flags, {
    execArgv: ['--expose-gc', '--no-warnings'], // they are told in the measurement
    serialization: 'advanced',
    env: {
      PATH: process.env['PATH'],
      SSL_CERT_FILE: join(directory, 'ca.pem'),
      SOAK_TIMES: JSON.stringify(TIMES),
    },
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
    measure(what = 'measure') {
      child.send(what);
      return answer<Measurement>();
    },
    kill: () => void child.kill('SIGKILL'),
  };
}

/** Stretches of load, each followed by a measurement at rest. */
function stretches(seconds: number): number[] {
  const count = Math.max(Math.min(Math.round(seconds / 12), 20), 4);
  return Array.from({ length: count }, () => (seconds * 1000) / count);
}

function print(findings: readonly Finding[], samples: readonly Sample[]): void {
  const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);
  console.log('\nload, min  heap, MB  rss, MB  sockets  requests  renewals');
  for (const { minutes, measurement } of samples) {
    const { heapUsed, rss, resources, counters } = measurement;
    const cells = [
      minutes.toFixed(2),
      mb(heapUsed),
      mb(rss),
      resources['TCPSocketWrap'] ?? 0,
      counters['requests'],
      counters['renewals'],
    ];
    console.log(cells.map((cell, i) => String(cell).padStart([9, 8, 7, 7, 8, 8][i] as number)).join('  '));
  }
  console.log('');
  for (const { what, found, allowed, good } of findings) {
    console.log(`${good ? 'ok    ' : 'FAILED'}  ${what}: ${found} (${allowed})`);
  }
}

async function soak(): Promise<number> {
  const { seconds, streams, seed } = options;
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-soak-'));
  const simulator = await startSimulator({
    directory,
    secretLifetime: SECRET_LIFETIME,
    recorded: 0,
  });
  const child = await startChild(directory, simulator);
  const random = seededRandom(seed + 1);
  let trustFaults = 0;
  const weather = setInterval(() => {
    simulator.faults.set(TRUST_FAULTS[Math.floor(random() * TRUST_FAULTS.length)]!, 1);
    trustFaults += 1;
  }, TRUST_FAULT_EVERY);
  try {
    console.log(
      `${streams} streams for ${seconds} s, seed ${seed}, a new epoch every ${TIMES.secretRenew / 1000} s`,
    );
    const load = createLoad(child.url, streams, createPlan(seed));
    load.tally.explained.add(TRUST_FAULT_LOGS).add('control_api_failed').add('upstream_reset');
    const samples: Sample[] = [];
    let underLoad = 0;
    for (const ms of stretches(seconds)) {
      await load.run(ms);
      underLoad += ms;
      // How many connections the pool has at a moment is chance, and each takes memory.
      simulator.closeIdleConnections();
      await delay(AFTER_LOAD);
      samples.push({ minutes: underLoad / 60_000, measurement: await child.measure() });
    }
    clearInterval(weather);
    const closed = await child.measure('close');
    const { tally } = load;
    const unexplained = [...tally.unexplained, ...simulator.exchanges.violations()];
    const findings = judge({ ...tally, samples, closed, unexplained });
    print(findings, samples);
    const { requests, complete, left, faults } = tally;
    console.log(
      `\n${requests} requests: ${complete} answered whole, ${left} left by their clients, ${faults} faults that ended as they should`,
    );
    console.log(
      `${samples.at(-1)?.measurement.counters['renewals']} epochs, ${trustFaults} faults of the trust side`,
    );
    for (const line of unexplained.slice(0, 20)) console.log(`  ${line}`);
    const good = findings.every((finding) => finding.good);
    console.log(good ? '\nverdict: good' : '\nverdict: FAILED');
    return good ? 0 : 1;
  } finally {
    clearInterval(weather);
    child.kill();
    await simulator.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

process.exitCode = await soak();
