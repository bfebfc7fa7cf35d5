import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseArgv } from '../../lib/config/argv.ts';
import { runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('a mistake on the command line', () => {
  const directory = temporaryDirectory('privatemode-mistakes-');

  /** stderr without the directory's name. */
  async function told(argv: readonly string[], env: Record<string, string> = {}): Promise<string> {
    const { code, stdout, stderr } = await runCommand(
      argv.map((arg) => arg.replace('DIR', directory)),
      { env },
    );
    assert.deepEqual([code, stdout], [1, '']);
    return stderr.replaceAll(directory, 'DIR');
  }

  /** What the message names: of each kind one. */
  const mistakes: [argv: string[], named: string][] = [
    [['--api_key=k'], 'unknown flag: --api_key. Did you mean --api-key?'],
    [['--nope=x'], '--nope'],
    [['-log-level=debug'], 'not "og-level=debug"'],
    [['--', '--port=1'], 'behind --'],
    [['verfy'], 'unknown command "verfy" for "privatemode-proxy". Did you mean verify?'],
    [['--api-key', 'k', 'run', 'claude'], 'A command comes first'],
    [['receipts', 'check'], 'receipts verify'],
    [['clients', 'revoke', 'ann', '--clients=DIR/gone.json'], 'DIR/gone.json: ENOENT'],
    [['verify', 'proof'], '--saved FILE'],
    [['verify', '--api-key=k', '--save=~/proof'], '$HOME'],
    [['--dump-requests', 'true'], '--flag=true'],
    [['--port'], 'flag needs an argument: --port PORT'],
    [['--api-key', '--port', '8080'], '--api-key took --port'],
    [['--port=8080\n'], 'not "8080\\n"'],
    [['receipts', 'verify', '--since', '2026-02-29'], '--since wants a day'],
    [['usage', '--by=endpoint'], 'one of client, model, day'],
    [
      ['--cdn-base-url=ftp://me:password@cdn.example'],
      '--cdn-base-url wants an https URL without a query, not "ftp://…@cdn.example"',
    ],
    [['status', '--json'], 'status --admin-address HOST:PORT'],
  ];
  for (const [argv, named] of mistakes)
    it(`${argv.join(' ')}: the message has ${named}`, async () => {
      const message = await told(argv);
      assert.match(message, /^Error: [^\n]*\n$/);
      assert.ok(message.includes(named), message);
    });

  /** Where a key may stand by mistake. */
  for (const argv of [
    ...[['sk-CANARY'], ['–sk-CANARY'], ['--api-key=', 'sk-CANARY'], ['--dump-requests', 'sk-CANARY']],
    ...[
      ['--', 'sk-CANARY'],
      ['-k', 'sk-CANARY'],
      ['-ksk-CANARY'],
      ['-k=sk-CANARY'],
      ['status', 'sk.CANARY:1'],
    ],
  ])
    it(`${argv.join(' ')}: says what is wrong without the key`, async () =>
      assert.doesNotMatch(await told(argv), /CANARY/));

  it('a flag that is given more than once with several values is told, without them', () => {
    for (const [argv, name] of [
      [['--port=1', '--port=2'], 'port'],
      [['--dump-requests', '--dump-requests=false'], 'dump-requests'],
      [['--api-key=sk-CANARY', '--api-key', 'sk-CANARY2'], 'api-key'],
      [['--port=1', '--port=1']],
      [['--model-alias=a=b', '--model-alias=c=d']],
    ] as [string[], string?][]) {
      const told = name === undefined ? [] : [`--${name} is given more than once, and only the last counts`];
      assert.deepEqual(parseArgv(argv).warnings, told);
    }
  });

  it('a wrong variable of the environment is reported by its name by every command that reads it', async () => {
    const port = 'PRIVATEMODE_PROXY_PORT wants a port number from 0 to 65535, not "x"';
    for (const argv of [[], ['verify', '--api-key=k'], ['healthcheck']])
      assert.equal(await told(argv, { PRIVATEMODE_PROXY_PORT: 'x' }), `Error: ${port}\n`);
    const unknown =
      'unknown setting in the environment: PRIVATEMODE_PROXY_PRT. Did you mean PRIVATEMODE_PROXY_PORT?';
    for (const argv of [['status'], ['healthcheck'], ['verify', '--api-key=k']])
      assert.equal(await told(argv, { PRIVATEMODE_PROXY_PRT: 'x' }), `Error: ${unknown}\n`);
  });
});
