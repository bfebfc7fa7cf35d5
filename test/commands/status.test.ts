/** The command `status` against a listener that answers as told, and against nobody. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { STATUS as COMMAND } from '../../lib/commands/status.ts';
import { parseArgv } from '../../lib/config/argv.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { clockOf } from '../support/remote/fake-clock.ts';
import { words } from '../support/remote/standing.ts';

const REPORT = {
  ...{ now: 0, standing: words('verified'), lastError: null, conditions: [] },
  traffic: { inFlight: 3, seconds: [], finished: [] },
  verification: { version: '1', protocol: 'v1', verified: true, epoch: null, verdict: null, chain: [] },
};
const REJECTED = {
  ...{ ...REPORT, standing: words('rejected') },
  verification: { ...REPORT.verification, verified: false },
};
const CUSTOM_ROOTS = { verdict: { roots: 'custom', failure: null, checks: [] } };
const FAILING = {
  ...REPORT,
  conditions: [
    { id: 'service_failing', severity: 'critical', since: 0, title: 't', reason: 'r', remedy: '' },
  ],
};

/** The status, and nothing else. */
const serving =
  (report: object = REPORT): RequestListener =>
  (req, res) =>
    void res.writeHead(req.url === '/status' ? 200 : 404).end(JSON.stringify(report));

/** A listener on loopback while `use` runs. */
async function listening<T>(listener: RequestListener, use: (address: string) => Promise<T>): Promise<T> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    return await use(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  }
}

const status = (
  argv: readonly string[],
  env: Record<string, string> = {},
  terminal: object = {},
): Promise<Ran> => runCommand(['status', ...argv], { env, terminal });

describe('the command status', { timeout: 600_000 }, () => {
  for (const [report, code, said] of [
    [REPORT, 0, /^✓ Verified/],
    [REJECTED, 10, /^✗ Not verified/],
    [{ ...REJECTED, conditions: FAILING.conditions }, 10, /^✗ Not verified/],
    [
      { ...FAILING, verification: { ...REPORT.verification, ...CUSTOM_ROOTS } },
      35,
      /^! Verified under custom roots\. The roots are not those of AMD and Intel/,
    ],
    [FAILING, 50, /✗ t: r\n/],
  ] as const) {
    it(`exits with ${code}, and says ${said}`, async () => {
      const found = await listening(serving(report), (address) => status(['--admin-address', address]));
      assert.deepEqual([found.code, found.stderr], [code, '']);
      assert.match(found.stdout, said);
      assert.match(found.stdout, /Requests in flight +3 /);
    });
  }

  it('prints with --json what the proxy says, with control characters escaped', async () => {
    const evil = { ...REPORT, version: '\u009b31m\u202e' };
    const { code, stdout } = await listening(serving(evil), (address) =>
      status(['--json', '--admin-address', address]),
    );
    assert.equal(code, 0);
    assert.deepEqual(JSON.parse(stdout), evil);
    assert.doesNotMatch(stdout, /[\u007f-\u009f\u202e]/);
  });

  it('says without --admin-address, as healthcheck does, whether the proxy is ready, and how to see more', async () => {
    const { code, stdout, stderr } = await listening(
      (req, res) => void res.writeHead(req.url === '/readyz' ? 204 : 404).end(),
      (address) => status(['--listen-address=127.0.0.1', `--port=${address.split(':')[1]}`]),
    );
    assert.deepEqual([code, stdout], [0, 'ready\n']);
    assert.match(stderr, /^To see more, start the proxy with --admin-address 127\.0\.0\.1:9090,/);
  });

  const other = /gives no status of a proxy of this version \(HTTP status \d+\): give the --admin-address of/;
  const nobody =
    /^Error: nothing answers on 127\.0\.0\.1 port \d+ \(\w+\): start the proxy with --admin-address /;
  const hints: readonly (readonly [what: string, listener: RequestListener | undefined, words: RegExp])[] = [
    ['nobody', undefined, nobody],
    ['the port of the applications', (_req, res) => void res.writeHead(404).end('{}'), other],
    ['something that speaks no JSON', (_req, res) => void res.end('hello'), other],
    [
      'a proxy of another version',
      (_req, res) =>
        void res.end(JSON.stringify({ standing: {}, conditions: [], traffic: { finished: [] } })),
      other,
    ],
  ];
  for (const [what, listener, words] of hints) {
    it(`says what to do if --admin-address leads to ${what}`, async () => {
      let address = '';
      const asked = await listening(listener ?? (() => {}), async (open) => {
        address = open;
        return listener && status(['--admin-address', open]);
      });
      const { code, stdout, stderr } = asked ?? (await status(['--admin-address', address]));
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, words);
    });
  }

  it('prints colours only to a terminal, and not with NO_COLOR', async () => {
    await listening(serving(), async (address) => {
      const look = async (env: Record<string, string>, terminal: object): Promise<boolean> =>
        (await status(['--admin-address', address], env, terminal)).stdout.includes('\u001b');
      assert.equal(await look({}, { isTTY: true }), true);
      assert.equal(await look({}, {}), false);
      assert.equal(await look({ NO_COLOR: '1' }, { isTTY: true }), false);
    });
  });
});

describe('status --watch', { timeout: 600_000 }, () => {
  /** Until Ctrl-C, once `enough` holds of what was written. */
  async function watch(
    address: string,
    enough: (text: string) => boolean,
    more: string[] = [],
    terminal = {},
  ) {
    let text = '';
    const stdout = {
      write(piece: string): void {
        text += piece;
        if (enough(text)) process.emit('SIGINT');
      },
      ...terminal,
    };
    const given = parseArgv(['--watch', '--admin-address', address, ...more], COMMAND.flags);
    const io = { stdout, stderr: stdout, clock: clockOf({ statusInterval: 5 }) };
    const code = await COMMAND.run({ given, words: [], rest: [], env: {}, io });
    return { code, text };
  }
  const times = (text: string, part: string): number => text.split(part).length - 1;

  it('redraws the status in place on a terminal, with no more lines than fit, and restores the terminal at the end', async () => {
    const { code, text } = await listening(serving(), (address) =>
      watch(address, (written) => times(written, '\u001b[J') === 2, [], { isTTY: true, rows: 4 }),
    );
    assert.equal(code, 0);
    assert.equal(times(text, '\u001b[H'), 2);
    assert.equal(times(text, '\u001b[K\n'), 6);
    assert.ok(text.startsWith('\u001b[?7l') && text.endsWith('\u001b[?7h'));
  });

  it('goes on while the proxy does not answer, and with --json prints one object per line', async () => {
    let asked = 0;
    const flaky: RequestListener = (req, res) => {
      asked += 1;
      if (asked === 2) req.socket.destroy();
      else serving()(req, res);
    };
    const { code, text } = await listening(flaky, (address) =>
      watch(address, (written) => times(written, '\n') === 3, ['--json']),
    );
    assert.equal(code, 0);
    const lines = text
      .trim()
      .split('\n')
      .map((line) => Object.keys(JSON.parse(line))[0]);
    assert.deepEqual(lines, ['now', 'error', 'now']);
  });
});
