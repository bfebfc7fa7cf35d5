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
    const files: Record<string, string | Buffer> = {
      'key.txt': 'k\n',
      'quoted.txt': '"k"\n',
      'exported.txt': 'export API_KEY=k\n',
      'page.json': '<!DOCTYPE html><title>404</title>',
      'empty.json': '\n',
      'marked.json': '\ufeff{}',
      'list.json': '[]',
      'cut.json': '{"Policies":',
      'package.json': '{"name":"privatemode-proxy"}',
    };
    for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
  });

  /** stderr without the directory's name. */
  async function told(argv: readonly string[], env: Record<string, string> = {}): Promise<string> {
    const { code, stdout, stderr } = await runCommand(
      argv.map((arg) => arg.replace('DIR', directory)),
      { env },
    );
    assert.deepEqual([code, stdout], [stderr === '' ? 0 : 1, '']);
    return stderr.replaceAll(directory, 'DIR');
  }

  /** One line of each kind of message. */
  const mistakes: [argv: string[], stderr: string][] = [
    [['--api_key=k'], 'unknown flag: --api_key. Did you mean --api-key?'],
    [['-log-level=debug'], 'unknown flag: -log-level. Did you mean --log-level?'],
    [['--nope=x'], 'unknown flag: --nope; --help lists all flags'],
    [['--constructor'], 'unknown flag: --constructor; --help lists all flags'],
    [
      ['--no-dump-requests'],
      'unknown flag: --no-dump-requests. A boolean is switched off by --dump-requests=false',
    ],
    [['-x'], 'unknown flag: -x; --help lists all flags'],
    [['--', '--port=1'], 'unexpected argument behind --: every setting is a flag in front of it'],
    [['verfy'], 'unknown command "verfy" for "privatemode-proxy". Did you mean verify?'],
    [['frobnicate'], 'unknown command "frobnicate" for "privatemode-proxy"; --help lists all commands'],
    [
      ['--api-key', 'k', 'run', 'claude'],
      'unknown command "run" for "privatemode-proxy". A command comes first, and then its flags',
    ],
    [['claude'], 'unknown command "claude" for "privatemode-proxy". Did you mean run claude?'],
    [
      ['receipts', 'check'],
      'receipts takes one command before its flags: receipts verify (see receipts --help)',
    ],
    [
      ['clients'],
      'clients takes one command before its flags: clients new NAME…, clients list, clients revoke NAME (see clients --help)',
    ],
    [
      ['verify', 'proof'],
      'unexpected argument "proof": every setting is a flag that starts with --; a service is given with --api-endpoint HOST:PORT, and a record with --saved FILE',
    ],
    [
      ['usage', 'a/receipts'],
      'unexpected argument: every setting is a flag that starts with --; a directory is given as --dir DIR',
    ],
    [
      ['--dump-requests', 'true'],
      'unexpected argument "true" after --dump-requests: a boolean is written --dump-requests=true or =false',
    ],
    [['--dump-requests=yes'], '--dump-requests wants true or false, not "yes"'],
    [['--port'], 'flag needs an argument: --port PORT'],
    [['--port=8080\n'], '--port wants a port number from 0 to 65535, not "8080\\n"'],
    [
      ['--max-body-bytes=10MB'],
      '--max-body-bytes wants a whole number of at least 1, without a unit, not "10MB"',
    ],
    [
      ['receipts', 'verify', '--since', '2026-02-29'],
      '--since wants a day such as 2026-12-01, not "2026-02-29"',
    ],
    [
      ['usage', '--until=yesterday'],
      '--until wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "yesterday"',
    ],
    [
      ['usage', '--since=2026-11-02', '--until=2026-11-02'],
      '--since 2026-11-02T00:00:00.000Z must be earlier than --until 2026-11-02T00:00:00.000Z: swap them, or leave one out',
    ],
    [['usage', '--by=endpoint'], '--by wants one of client, model, day, not "endpoint"'],
    [
      ['status', '--json'],
      '--watch and --json ask the admin listener of the proxy: start the proxy with --admin-address 127.0.0.1:9090, and give the same to ' +
        'status (or set PRIVATEMODE_PROXY_ADMIN_ADDRESS for both)',
    ],
    [
      ['verify', '--api-key=k', '--save=~/proof'],
      '--save: ~/proof cannot be written: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    [
      ['verify', '--api-key=k', '--save=DIR/key.txt/below'],
      '--save: DIR/key.txt/below cannot be written: ENOTDIR: a file or a link stands where a directory is needed; check the path',
    ],
  ];

  /** What a wrong one could leave unprotected: the key, clients, the manifest, addresses, the service. */
  const protecting: [argv: string[], stderr: string][] = [
    [['--api-key='], '--api-key is empty: it must hold the key'],
    [['--api-key'], 'flag needs an argument: --api-key KEY|@FILE'],
    [['--api-key=@'], '--api-key has no file name after the @: write @FILE'],
    [['--api-key=<html>'], '--api-key holds more than the key: leave only the key'],
    [['--api-key=$KEY'], '--api-key holds a variable or a flag in place of the key'],
    [['--api-key=Bearer sk'], '--api-key begins with "Bearer", which is no part of the key: leave it out'],
    [['--api-key="k'], '--api-key has a quote at its beginning or end: leave it out'],
    [
      ['--api-key', 'DIR/key.txt'],
      '--api-key is the name of an existing file, not a key: write @ in front of it',
    ],
    [
      ['--api-key', '--port', '8080'],
      'flag needs an argument: --api-key took --port, the next flag, for its value',
    ],
    [['--api-key', '--port=8080'], '--api-key holds a variable or a flag in place of the key'],
    [
      ['--api-key=@DIR/quoted.txt'],
      'the API key file "DIR/quoted.txt" has a quote at its beginning or end: leave it out',
    ],
    [
      ['--api-key=@DIR/exported.txt'],
      'the API key file "DIR/exported.txt" holds more than the key: leave only the key',
    ],
    [
      ['--api-key=@~/key.txt'],
      'failed to read API key file "~/key.txt" of --api-key: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    [
      ['clients', 'new', 'ann,bob'],
      'clients new NAME: clients[0].name: expected a name of at most 64 letters, digits and . _ @ -, beginning with a letter or digit',
    ],
    [
      ['clients', 'new', 'a', 'b', 'a'],
      'clients new NAME: clients[2].name: expected a name that no other client has; clients[0] has it too',
    ],
    [
      ['clients', 'revoke'],
      'clients takes one command before its flags: clients new NAME…, clients list, clients revoke NAME (see clients --help)',
    ],
    [['clients', 'revoke', 'a'], 'clients revoke needs the --clients FILE of the proxy'],
    [
      ['clients', 'revoke', 'a', 'B'],
      'unexpected argument: every setting is a flag that starts with --; give NAME before all flags (new takes several, revoke one, list none), and the file as --clients FILE; limits, models and expiry of a client go into the file, ' +
        'beside its tokens',
    ],
    [
      ['clients', 'revoke', 'ann', '--clients=DIR/gone.json'],
      'failed to read the file of --clients, DIR/gone.json: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    [
      ['clients', 'list', '--clients=DIR/key.txt'],
      '--clients DIR/key.txt: not JSON at character 0, in line 1 (JSON has no comments, and no comma behind the last item)',
    ],
    [
      ['--manifest-path=https://cdn.example/manifest.json'],
      'failed to read manifest file "https://cdn.example/manifest.json" of --manifest-path: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    ...['page', 'empty', 'list', 'cut', 'package', 'marked'].map((name): [string[], string] => [
      [`--manifest-path=DIR/${name}.json`],
      `the manifest file "DIR/${name}.json" of --manifest-path is no JSON object with the member Policies: not a manifest; fetch it again, and save it byte for byte as it was sent`,
    ]),
    [
      ['--listen-address=:9090'],
      '--listen-address wants a host name, an IP address or unix:PATH, not ":9090"; the port goes into --port 9090',
    ],
    [
      ['--listen-address=unix:proxy.sock'],
      '--listen-address wants an absolute path of at most 103 bytes behind unix:, not "unix:proxy.sock"',
    ],
    [
      ['--admin-address=:9090'],
      '--admin-address wants HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090, not ":9090"',
    ],
    [
      ['--admin-address=::1'],
      '--admin-address wants HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090, not "::1"',
    ],
    [
      ['--api-endpoint=https://api.example'],
      '--api-endpoint wants HOST or HOST:PORT, without a scheme or path, not "https://api.example"',
    ],
    [
      ['verify', '--api-endpoint=h', '--saved=FILE'],
      '--api-endpoint is for the live service, but --saved is for a record; leave one of them out',
    ],
    [
      ['verify', '--save=FILE'],
      'verify asks the live service, which needs --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a record instead, name it with --saved FILE (see verify --help)',
    ],
    [
      ['--clients=c.json', '--limits-store=localhost:6379'],
      '--limits-store wants redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or rediss://…; in user and password write %25 %40 %3A %2F %3F %23 for % @ : / ? #',
    ],
  ];
  for (const [argv, message] of [...mistakes, ...protecting]) {
    it(`${argv.join(' ')}: ${message}`, async () => {
      assert.equal(await told(argv), `Error: ${message}\n`);
    });
  }

  /** Where a key may stand by mistake: the message must not repeat it. */
  const KEY_ASIDE =
    'unexpected argument: every setting is a flag that starts with --; a key in a file is given as --api-key @FILE';
  const secrets: [argv: string[], stderr: string][] = [
    ...[['sk-CANARY'], ['–sk-CANARY'], ['--api-key=', 'sk-CANARY']].map((argv): [string[], string] => [
      argv,
      KEY_ASIDE,
    ]),
    [['--', 'sk-CANARY'], 'unexpected argument behind --: every setting is a flag in front of it'],
    ...[['-k', 'sk-CANARY'], ['-ksk-CANARY'], ['-k=sk-CANARY']].map((argv): [string[], string] => [
      argv,
      'unknown flag: -k; --help lists all flags',
    ]),
    [
      ['--dump-requests', 'sk-CANARY'],
      'unexpected argument after --dump-requests: a boolean is written --dump-requests=true or =false',
    ],
    [
      ['status', 'sk.CANARY:1'],
      'unexpected argument: every setting is a flag that starts with --; the proxy to ask is named by its --admin-address HOST:PORT',
    ],
  ];
  for (const [argv, message] of secrets) {
    it(`${argv.join(' ')}: says what is wrong without the key`, async () => {
      assert.equal(await told(argv), `Error: ${message}\n`);
    });
  }

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
    const salt = {
      PRIVATEMODE_PROXY_DISABLE_PROMPT_CACHE: 'false',
      PRIVATEMODE_PROXY_PROMPT_CACHE_SALT: 's',
    };
    assert.match(
      await told([], salt),
      /^Error: PRIVATEMODE_PROXY_PROMPT_CACHE_SALT has 1 bytes; a salt needs/,
    );
    for (const [argv, message] of [
      [
        ['--tls-key-path=k'],
        'TLS certificate and key must be provided together: --tls-key-path needs --tls-cert-path',
      ],
      [
        [],
        'TLS certificate and key must be provided together: PRIVATEMODE_PROXY_TLS_KEY_PATH needs --tls-cert-path',
      ],
    ] as const) {
      const env = { PRIVATEMODE_PROXY_TLS_KEY_PATH: 'k' };
      assert.equal(await told(argv, argv.length === 0 ? env : {}), `Error: ${message}\n`);
    }
    const unknown =
      'unknown setting in the environment: PRIVATEMODE_PROXY_PRT. Did you mean PRIVATEMODE_PROXY_PORT?';
    for (const argv of [['status'], ['healthcheck'], ['verify', '--api-key=k']])
      assert.equal(await told(argv, { PRIVATEMODE_PROXY_PRT: 'x' }), `Error: ${unknown}\n`);
  });

  const keys: [name: string, content: Buffer][] = [
    ['a byte order mark', Buffer.from('\ufeffk\n')],
    ['UTF-16, as PowerShell writes it', Buffer.from('\ufeffk\r\n', 'utf16le')],
    ['a key that ends like base64', Buffer.from('abcd==')],
  ];
  for (const [name, content] of keys) {
    it(`a key file with ${name} is accepted`, async () => {
      writeFileSync(join(directory, 'odd.txt'), content);
      assert.equal(await told(['--api-key=@DIR/odd.txt']), '');
    });
  }
});
