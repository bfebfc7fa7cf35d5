/** A proxy that cannot start whole does not start at all: nothing serves, and the exit code says so. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const firstError = ({ log }: Program): Promise<string> =>
  eventually(
    () => `an error in the log:\n${log()}`,
    () =>
      log()
        .split('\n')
        .slice(0, -1)
        .find((line) => line.includes('level=ERROR')),
  );

describe('a start that fails', { timeout: 600_000 }, () => {
  let occupied: Server;
  let workspace: string;
  let taken: number;
  before(async () => {
    workspace = temporaryDirectory('privatemode-start-');
    occupied = createServer().listen(0, '127.0.0.1');
    await once(occupied, 'listening');
    taken = (occupied.address() as AddressInfo).port;
  });
  after(() => {
    occupied.close();
  });

  /** What the program says where it ends with 1. */
  async function refusal(flags: readonly string[], env: Record<string, string> = {}): Promise<string> {
    const common = ['--listen-address=127.0.0.1', '--api-endpoint=localhost:1', `--workspace=${workspace}`];
    const words = await startProxyProcess([...common, ...flags], env).then(() => 'it started', String);
    assert.match(words, /did not start \(1\)/);
    return words;
  }

  const cases: [name: string, flags: (port: number) => string[]][] = [
    ['the port is taken', (port) => [`--port=${port}`]],
    ['the port is taken, with workers', (port) => [`--port=${port}`, '--workers=2']],
    ['the metrics port is taken', (port) => ['--port=0', `--admin-address=127.0.0.1:${port}`]],
    [
      'the metrics port is taken, with workers',
      (port) => ['--port=0', '--workers=2', `--admin-address=127.0.0.1:${port}`],
    ],
  ];
  for (const [name, flags] of cases) {
    it(`ends with 1 and says why: ${name}`, async () => {
      const words = await refusal(flags(taken));
      assert.match(words, /Error: listening on .*EADDRINUSE; another program has the port/);
      assert.ok(words.includes(`lsof -nP -iTCP:${taken} -sTCP:LISTEN`), words);
    });
  }

  const mistakes: [name: string, flags: string[], env: Record<string, string>, stderr: string][] = [
    [
      'a workspace that is below a file',
      ['--workspace=/dev/null/work'],
      {},
      'Error: --workspace: the directory "/dev/null/work" cannot be created (ENOTDIR); name a directory that can be written',
    ],
    [
      // Node's own recursive mkdir never returns here.
      'a workspace that mkdir cannot create (ENOENT)',
      ['--workspace=/proc/work'],
      {},
      'Error: --workspace: the directory "/proc/work" cannot be created (ENOENT); name a directory that can be written',
    ],
    [
      // Its permissions let root write.
      'a workspace that exists and cannot be written',
      ['--workspace=/proc'],
      {},
      'Error: --workspace: the directory "/proc" cannot be written (ENOENT); name a directory that can be written',
    ],
    [
      'a workspace that is a file',
      ['--workspace=/dev/null'],
      {},
      'Error: --workspace: "/dev/null" is not a directory; name a directory that can be written',
    ],
    [
      'https_proxy=foo',
      [],
      { https_proxy: 'foo' },
      'Error: https_proxy wants the address of an HTTP proxy, such as http://proxy.example:3128; unset it where there is none',
    ],
    [
      'HTTPS_PROXY=socks5://…',
      [],
      { HTTPS_PROXY: 'socks5://127.0.0.1:1080' },
      'Error: HTTPS_PROXY wants the address of an HTTP proxy, such as http://proxy.example:3128; unset it where there is none',
    ],
    [
      'an address in the environment without a host',
      [],
      { PRIVATEMODE_PROXY_METRICS_ADDRESS: ':9090' },
      'Error: PRIVATEMODE_PROXY_METRICS_ADDRESS wants HOST:PORT, not ":9090"; write 127.0.0.1:9090 for this machine ' +
        'alone, 0.0.0.0:9090 for all',
    ],
  ];
  for (const [name, flags, env, stderr] of mistakes) {
    it(`ends with 1 and says what to do: ${name}`, async () => {
      const words = await refusal(['--port=0', ...flags], env);
      assert.equal(words.trimEnd().split('\n').at(-1), stderr);
    });
  }

  it('names the service that cannot be reached, what to check, and when it tries again', async () => {
    const flags = ['--listen-address=127.0.0.1', '--port=0', '--api-key=k', '--api-endpoint=localhost:1'];
    const manifest = join(workspace, 'manifest.json');
    writeFileSync(manifest, '{"Policies":{},"ReferenceValues":{}}');
    const proxy = await startProxyProcess(
      [...flags, `--workspace=${workspace}`, `--manifest-path=${manifest}`],
      {},
    );
    try {
      const error = await firstError(proxy);
      assert.match(
        error,
        /msg="The service cannot be reached; trying again within 1 second" .*reason="localhost:1 refused the connection"/,
      );
      assert.match(error, /remedy="Check the network, --api-endpoint and the proxy settings\."/);
      assert.doesNotMatch(proxy.log(), /Attestation/);
    } finally {
      await proxy.stop('SIGKILL');
    }
  });
});

const HOUR = 3_600_000;
const YEAR = 365 * 24 * HOUR;
describe('a start with a wrong clock', { timeout: 600_000 }, () => {
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
    it(`says to check the clock: ${name}`, async () => {
      remote.simulator.setClockSkew(skew);
      const proxy = await startProxyProcess([...remote.flags, '--port=0'], { ...remote.env });
      try {
        const line = await firstError(proxy);
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

describe('a running proxy that only its operator can repair', { timeout: 600_000 }, () => {
  for (const [what, code, break_] of [
    [
      'the service rejects its key',
      'api_key_rejected',
      ({ simulator }: Remote) => simulator.setApiKeys(['another']),
    ],
    [
      'the service runs under another manifest than the pinned one',
      'manifest_mismatch',
      ({ simulator }: Remote) => simulator.rotateManifest(),
    ],
  ] as const) {
    it(`ends with 1 if ${what}, and says what to do`, async (t) => {
      const remote = await startRemote();
      t.after(() => remote.close());
      const pinned = join(remote.directory, 'pinned.json');
      writeFileSync(pinned, remote.simulator.manifest);
      await break_(remote);
      const flags = [...remote.flags.filter((flag) => !flag.startsWith('--manifest-path'))];
      const words = await startProxyProcess(
        [...flags, `--manifest-path=${pinned}`, '--port=0', '--shutdown-grace=1s'],
        remote.env,
      ).then(async (proxy) => {
        t.after(() => proxy.stop('SIGKILL'));
        const { process } = proxy;
        await eventually('the end of the proxy', () => process.exitCode !== null);
        await eventually(
          () => `its last line:\n${proxy.log()}`,
          () => /^Error: .*\n$/m.test(proxy.log()),
        );
        return `it started, and ended (${process.exitCode}):\n${proxy.log()}`;
      }, String); // it may end before it has told its port
      assert.match(words, /(?:did not start|and ended) \(1\)/);
      const line = words.split('\n').find((each) => each.includes('The proxy cannot go on')) ?? words;
      assert.ok(line.includes(`code=${code}`) && line.includes('remedy='), line);
      assert.match(
        words.trimEnd().split('\n').at(-1) ?? '',
        /^Error: .+\. .+\.$/,
        'the reason is the last line',
      );
    });
  }
});
