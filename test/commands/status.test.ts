import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { STATUS as COMMAND } from '../../lib/commands/status.ts';
import { parseArgv } from '../../lib/config/argv.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { clockOf } from '../support/remote/fake-clock.ts';
import { listening } from '../support/remote/loopback.ts';
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

/** The address of a listener on loopback. */
const listen = async (t: TestContext, listener: RequestListener): Promise<string> =>
  `127.0.0.1:${(await listening(t, createServer(listener))).port}`;

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
    it(`exits with ${code}, and says ${said}`, async (t) => {
      const found = await status(['--admin-address', await listen(t, serving(report))]);
      assert.deepEqual([found.code, found.stderr], [code, '']);
      assert.match(found.stdout, said);
      assert.match(found.stdout, /Requests in flight +3 /);
    });
  }

  it('prints with --json what the proxy says, with control characters escaped', async (t) => {
    const evil = { ...REPORT, version: '\u009b31m\u202e' };
    const { code, stdout } = await status(['--json', '--admin-address', await listen(t, serving(evil))]);
    assert.equal(code, 0);
    assert.deepEqual(JSON.parse(stdout), evil);
    assert.doesNotMatch(stdout, /[\u007f-\u009f\u202e]/);
  });

  it('says without --admin-address, as healthcheck does, whether the proxy is ready, and how to see more', async (t) => {
    const ready = createServer((req, res) => void res.writeHead(req.url === '/readyz' ? 204 : 404).end());
    const { port } = await listening(t, ready);
    const { code, stdout, stderr } = await status(['--listen-address=127.0.0.1', `--port=${port}`]);
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
    it(`says what to do if --admin-address leads to ${what}`, async (t) => {
      const address = listener === undefined ? `127.0.0.1:${await freePort()}` : await listen(t, listener);
      const { code, stdout, stderr } = await status(['--admin-address', address]);
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, words);
    });
  }

  it('prints colours only to a terminal, and not with NO_COLOR', async (t) => {
    const address = await listen(t, serving());
    const look = async (env: Record<string, string>, terminal: object): Promise<boolean> =>
      (await status(['--admin-address', address], env, terminal)).stdout.includes('\u001b');
    assert.equal(await look({}, { isTTY: true }), true);
    assert.equal(await look({}, {}), false);
    assert.equal(await look({ NO_COLOR: '1' }, { isTTY: true }), false);
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

  it('redraws the status in place on a terminal, with no more lines than fit, and restores the terminal at the end', async (t) => {
    const drawnTwice = (written: string): boolean => times(written, '\u001b[J') === 2;
    const terminal = { isTTY: true, rows: 4 };
    const { code, text } = await watch(await listen(t, serving()), drawnTwice, [], terminal);
    assert.equal(code, 0);
    assert.equal(times(text, '\u001b[H'), 2);
    assert.equal(times(text, '\u001b[K\n'), 6);
    assert.ok(text.startsWith('\u001b[?7l') && text.endsWith('\u001b[?7h'));
  });

  it('goes on while the proxy does not answer, and with --json prints one object per line', async (t) => {
    let asked = 0;
    const flaky: RequestListener = (req, res) => {
      asked += 1;
      if (asked === 2) req.socket.destroy();
      else serving()(req, res);
    };
    const three = (written: string): boolean => times(written, '\n') === 3;
    const { code, text } = await watch(await listen(t, flaky), three, ['--json']);
    assert.equal(code, 0);
    const lines = text
      .trim()
      .split('\n')
      .map((line) => Object.keys(JSON.parse(line))[0]);
    assert.deepEqual(lines, ['now', 'error', 'now']);
  });
});
