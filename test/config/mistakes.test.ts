/** The likely mistakes of a first hour: what a person reads on the terminal, word for word. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { parseArgv } from '../../lib/config/argv.ts';
import { runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('a mistake on the command line', () => {
  let directory: string;
  before(() => {
    directory = temporaryDirectory('privatemode-mistakes-');
    writeFileSync(join(directory, 'key.txt'), 'k\n');
  });

  /** stderr without the directory's name. */
  async function told(argv: readonly string[], env: Record<string, string> = {}): Promise<string> {
    const { code, stdout, stderr } = await runCommand(
      argv.map((arg) => arg.replace('DIR', directory)),
      { env },
    );
    assert.deepEqual([code, stdout], [1, '']);
    return stderr.replaceAll(directory, 'DIR');
  }

  /** One line of each kind of message. */
  const mistakes: [argv: string[], stderr: string][] = [
    [['--api_key=k'], 'unknown flag: --api_key. Did you mean --api-key?'],
    [['--nope=x'], 'unknown flag: --nope; --help lists all flags'],
    [
      ['-log-level=debug'],
      '--log-level wants debug, info, warn, error, or a number (-4: debug, 8: error), not "og-level=debug"',
    ],
    [['-x'], 'unknown flag: -x; --help lists all flags'],
    [['--', '--port=1'], 'unexpected argument behind --: every setting is a flag in front of it'],
    [['verfy'], 'unknown command "verfy" for "privatemode-proxy". Did you mean verify?'],
    [['frobnicate'], 'unknown command "frobnicate" for "privatemode-proxy"; --help lists all commands'],
    [
      ['--api-key', 'k', 'run', 'claude'],
      'unknown command "run" for "privatemode-proxy". A command comes first, and then its flags',
    ],
    [
      ['receipts', 'check'],
      'receipts takes one command before its flags: receipts verify (see receipts --help)',
    ],
    [
      ['clients', 'revoke'],
      'clients takes one command before its flags: clients new NAME…, clients list, clients revoke NAME (see clients --help)',
    ],
    [['clients', 'revoke', 'a', 'B'], 'unexpected argument: every setting is a flag that starts with --'],
    [
      ['clients', 'revoke', 'ann', '--clients=DIR/gone.json'],
      'failed to read the file of --clients, DIR/gone.json: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    [
      ['verify', 'proof'],
      'unexpected argument "proof": every setting is a flag that starts with --; a service is given with --api-endpoint HOST:PORT, and a record with --saved FILE',
    ],
    [
      ['verify', '--save=FILE'],
      'verify asks the live service, which needs --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a record instead, name it with --saved FILE (see verify --help)',
    ],
    [
      ['verify', '--api-key=k', '--save=~/proof'],
      '--save begins with ~, which the shell replaces only where a word begins: write $HOME',
    ],
    [
      ['usage', 'a/receipts'],
      'unexpected argument: every setting is a flag that starts with --; a directory is given as --dir DIR',
    ],
    [
      ['--dump-requests', 'true'],
      'unexpected argument "true" after --dump-requests: a boolean is written --flag=true',
    ],
    [['--dump-requests=yes'], '--dump-requests wants true or false, not "yes"'],
    [['--port'], 'flag needs an argument: --port PORT'],
    [
      ['--api-key', '--port', '8080'],
      'flag needs an argument: --api-key took --port, the next flag, for its value',
    ],
    [
      ['--api-key', 'DIR/key.txt'],
      '--api-key is the name of an existing file, not a key: write @ in front of it',
    ],
    [['--port=8080\n'], '--port wants a port number from 0 to 65535, not "8080\\n"'],
    [
      ['--max-body-bytes=10MB'],
      '--max-body-bytes wants a whole number of at least 1, without a unit, not "10MB"',
    ],
    [
      ['--shutdown-grace=600h'],
      '--shutdown-grace wants a duration such as 30s, 5m or 1h30m, from 0ms to 576h, not "600h"',
    ],
    [
      ['--listen-address=:9090'],
      '--listen-address wants a host without port, or unix:/PATH of at most 103 bytes, not ":9090"',
    ],
    [
      ['--admin-address=::1'],
      '--admin-address wants HOST:PORT without a scheme, such as 127.0.0.1:9090 or [::1]:9090, not "::1"',
    ],
    [
      ['receipts', 'verify', '--since', '2026-02-29'],
      '--since wants a day such as 2026-12-01, not "2026-02-29"',
    ],
    [
      ['usage', '--until=yesterday'],
      '--until wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "yesterday"',
    ],
    [['usage', '--by=endpoint'], '--by wants one of client, model, day, not "endpoint"'],
    [['status', '--json'], '--watch and --json go with status --admin-address HOST:PORT'],
  ];
  for (const [argv, message] of mistakes)
    it(`${argv.join(' ')}: ${message}`, async () => assert.equal(await told(argv), `Error: ${message}\n`));

  /** Where a key may stand by mistake: the message must not repeat it. */
  const KEY_ASIDE =
    'unexpected argument: every setting is a flag that starts with --; a key in a file is given as --api-key @FILE';
  const secrets: [argv: string[], stderr: string][] = [
    ...[['sk-CANARY'], ['–sk-CANARY'], ['--api-key=', 'sk-CANARY'], ['--dump-requests', 'sk-CANARY']].map(
      (argv): [string[], string] => [argv, KEY_ASIDE],
    ),
    [['--', 'sk-CANARY'], 'unexpected argument behind --: every setting is a flag in front of it'],
    ...[['-k', 'sk-CANARY'], ['-ksk-CANARY'], ['-k=sk-CANARY']].map((argv): [string[], string] => [
      argv,
      'unknown flag: -k; --help lists all flags',
    ]),
    [
      ['status', 'sk.CANARY:1'],
      'unexpected argument: every setting is a flag that starts with --; a proxy is named by its --admin-address, or its --listen-address and --port',
    ],
  ];
  for (const [argv, message] of secrets)
    it(`${argv.join(' ')}: says what is wrong without the key`, async () =>
      assert.equal(await told(argv), `Error: ${message}\n`));

  it('a flag that is given more than once with several values is told, without them', () => {
    for (const [argv, name] of [
      [['--port=1', '--port=2'], 'port'],
      [['--dump-requests', '--dump-requests=false'], 'dump-requests'],
      [['--api-key=sk-CANARY', '--api-key', 'sk-CANARY2'], 'api-key'],
      [['--port=1', '--port=1']],
      [['--model-alias=a=b', '--model-alias=c=d']],
    ] as [string[], string?][])
      assert.deepEqual(
        parseArgv(argv).warnings,
        name === undefined ? [] : [`--${name} is given more than once, and only the last counts`],
      );
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
