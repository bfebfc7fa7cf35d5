/** The likely mistakes of a first hour: what a person reads on the terminal, word for word. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { AGENT_NAMES } from '../../lib/commands/agents.ts';
import { runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('a mistake on the command line:', () => {
  let directory: string;
  before(() => {
    directory = temporaryDirectory('privatemode-mistakes-');
    const files: Record<string, string | Buffer> = {
      'key.txt': 'k\n',
      'quoted.txt': '"k"\n',
      'single.txt': "'k'\n",
      'named.txt': 'PRIVATEMODE_API_KEY=k\n',
      'exported.txt': 'export API_KEY="k"\n',
      'page.json': '<!DOCTYPE html><title>404</title>',
      'empty.json': '\n',
      'marked.json': '\ufeff{}',
      'list.json': '[]',
      'cut.json': '{"Policies":',
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

  const mistakes: [argv: string[], stderr: string][] = [
    [['--apikey=k'], 'unknown flag: --apikey. Did you mean --api-key?'],
    [['--api_key=k'], 'unknown flag: --api_key. Did you mean --api-key?'],
    [['--prot=9090'], 'unknown flag: --prot. Did you mean --port?'],
    [['--listen=x'], 'unknown flag: --listen; --help lists all flags'],
    [['--Workers=2'], 'unknown flag: --Workers. Did you mean --workers?'],
    [
      ['--no-dump-requests'],
      'unknown flag: --no-dump-requests. A boolean is switched off by --dump-requests=false',
    ],
    [['--Port=1'], 'unknown flag: --Port. Did you mean --port?'],
    [['start', '--port=1'], 'unknown command "start" for "privatemode-proxy"; --help lists all commands'],
    [['verfy'], 'unknown command "verfy" for "privatemode-proxy". Did you mean verify?'],
    ...AGENT_NAMES.map((agent): [string[], string] => [
      [agent],
      `unknown command "${agent}" for "privatemode-proxy". Did you mean run ${agent}?`,
    ]),
    [
      ['--api-key', 'DIR/key.txt'],
      '--api-key is the name of an existing file, not a key: write @ in front of it, as in --api-key @key.txt',
    ],
    [['--api-key="k"'], '--api-key has quotes around the key: leave them out'],
    [
      ['--api-key=@DIR/quoted.txt'],
      'the API key file "DIR/quoted.txt" has quotes around the key: leave them out',
    ],
    [
      ['--api-key=@DIR/single.txt'],
      'the API key file "DIR/single.txt" has quotes around the key: leave them out',
    ],
    [
      ['--api-key=@DIR/named.txt'],
      'the API key file "DIR/named.txt" holds NAME=KEY: leave out the name and the equals sign',
    ],
    [
      ['--api-key=@DIR/exported.txt'],
      'the API key file "DIR/exported.txt" holds NAME=KEY: leave out the name and the equals sign',
    ],
    [
      ['--manifest-path=DIR/page.json'],
      'the manifest file "DIR/page.json" of --manifest-path is an HTML page, not a manifest; most likely an error page was saved in its place',
    ],
    [
      ['--manifest-path=DIR/empty.json'],
      'the manifest file "DIR/empty.json" of --manifest-path is empty: not a manifest',
    ],
    [
      ['--manifest-path=DIR/list.json'],
      'the manifest file "DIR/list.json" of --manifest-path is not a JSON object: not a manifest',
    ],
    [
      ['--manifest-path=DIR/cut.json'],
      'the manifest file "DIR/cut.json" of --manifest-path is not a JSON object: not a manifest',
    ],
    [
      ['--manifest-path=DIR/marked.json'],
      'the manifest file "DIR/marked.json" of --manifest-path begins with a byte order mark, which the manifest of the service does not have; ' +
        'save it byte for byte as it was sent',
    ],
    [
      ['--listen-address=:9090'],
      '--listen-address wants a host name or an IP address, not ":9090"; the port goes into --port 9090',
    ],
    [
      ['--listen-address=/run/proxy.sock'],
      '--listen-address wants a host name, an IP address or unix:PATH, not "/run/proxy.sock"; a socket file is written unix:/run/proxy.sock',
    ],
    [
      ['--listen-address=unix:proxy.sock'],
      '--listen-address wants an absolute path behind unix:, not "unix:proxy.sock"; write it like unix:/run/privatemode/proxy.sock',
    ],
    [
      ['--listen-address=127.0.0.1:9090'],
      '--listen-address wants a host name or an IP address, not "127.0.0.1:9090"; the port goes into --port 9090',
    ],
    [
      ['--admin-address=:9090'],
      '--admin-address wants HOST:PORT, not ":9090"; write 127.0.0.1:9090 for this machine alone, 0.0.0.0:9090 for all',
    ],
    [
      ['--admin-address=9090'],
      '--admin-address wants HOST:PORT, not "9090"; write 127.0.0.1:9090 for this machine alone, 0.0.0.0:9090 for all',
    ],
    [['-api-key', 'k'], 'unknown flag: -api-key. Did you mean --api-key?'],
    [['-log-level=debug'], 'unknown flag: -log-level. Did you mean --log-level?'],
    [['-help'], 'unknown flag: -help. Did you mean --help?'],
    [['-p', '8080'], "unknown shorthand flag: 'p' (long flags take two dashes, and --help lists them)"],
    [['-k', 'sk-CANARY'], "unknown shorthand flag: 'k' (long flags take two dashes, and --help lists them)"],
    [['-v'], "unknown shorthand flag: 'v' (long flags take two dashes, and --help lists them)"],
    [
      ['verify', '-m', 'x'],
      "unknown shorthand flag: 'm' (long flags take two dashes, and --help lists them)",
    ],
    [['--api-key'], 'flag needs an argument: --api-key KEY|@FILE'],
    [
      ['--api-key', '--port', '8080'],
      'flag needs an argument: --api-key took --port, the next flag, for its value',
    ],
    [['--api-key', '--port=8080'], '--api-key holds the next flag: the key itself is missing'],
    [
      ['--api-key=@DIR/gone.txt'],
      'failed to read API key file "DIR/gone.txt" of --api-key: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    [
      ['--manifest-path=@DIR/list.json'],
      'failed to read manifest file "@DIR/list.json" of --manifest-path: ENOENT: no such file or directory; write the path without the @',
    ],
    [
      ['--manifest-path=DIR'],
      'failed to read manifest file "DIR" of --manifest-path: EISDIR: it is a directory; name the file in it',
    ],
    [
      ['--clients=c.json', '--limits-store=localhost:6379'],
      '--limits-store wants redis:// or rediss://, [USER]:PASSWORD@ if need be, HOST[:PORT][/DB]: it begins with neither; write redis:// in front of the host',
    ],
    [['--max-in-flight=2k'], '--max-in-flight wants a whole number of at least 1, without a unit, not "2k"'],
    [
      ['--admin-address=0.0.0.0'],
      '--admin-address wants HOST:PORT, not "0.0.0.0"; write 0.0.0.0:9090, or another port',
    ],
    [
      ['--api-endpoint=api.example/v1'],
      '--api-endpoint wants HOST or HOST:PORT without a scheme or path, not "api.example/v1"',
    ],
    [
      ['--listen-address=http://127.0.0.1:9090'],
      '--listen-address wants a host name or an IP address, not "http://127.0.0.1:9090"; the port goes into --port 9090',
    ],
    [
      ['--manifest-path=https://cdn.example/manifest.json'],
      'failed to read manifest file "https://cdn.example/manifest.json" of --manifest-path: ENOENT: no such file or directory; save what the URL serves, and name that file',
    ],
    [['--api-key='], '--api-key is empty: it must hold the key'],
    [['--port=:9090'], '--port wants a port number from 0 to 65535, not ":9090"'],
    [
      ['--api-endpoint=https://api.example'],
      '--api-endpoint wants HOST or HOST:PORT without a scheme or path, not "https://api.example"',
    ],
    [['--api-endpoint=:443'], '--api-endpoint wants HOST or HOST:PORT, not ":443"'],
    [['--workers=all'], '--workers wants a whole number of at least 1, or auto, not "all"'],
    [['--workers=0'], '--workers wants a whole number of at least 1, or auto, not "0"'],
    [['--api-key=@'], '--api-key has no file name after the @: write @FILE, as in --api-key @key.txt'],
  ];
  for (const [argv, message] of mistakes) {
    it(`${argv.join(' ')}: ${message}`, async () => {
      assert.equal(await told(argv), `Error: ${message}\n`);
    });
  }

  /** What one text says of several command lines. */
  const alike: [message: string, ...lines: string[][]][] = [
    [
      'unknown flag: --nope; --help lists all flags',
      ['--nope'],
      ['--nope=x'],
      ['verify', '--nope'],
      ['healthcheck', '--nope'],
    ],
    ['unknown flag: --constructor; --help lists all flags', ['--constructor']],
    ["unknown shorthand flag: 'x' (long flags take two dashes, and --help lists them)", ['-x']],
    ['flag needs an argument: --port PORT', ['--port']],
    ['flag needs an argument: -l LEVEL', ['-l']],
    ['bad flag syntax: a flag is written --name or --name=value', ['--=x'], ['---port=1']],
    ['--dump-requests wants true or false, not "yes"', ['--dump-requests=yes']],
    [
      'unexpected argument after --dump-requests: a boolean is written --dump-requests=true or =false',
      ...[
        ['--dump-requests', 'true'],
        ['--dump-requests', 'false'],
        ['--dump-requests', 'sk-CANARY'],
      ],
    ],
    [
      'unexpected argument: every setting is a flag that starts with --',
      ...[['-'], [''], ['sk-CANARY'], ['--', 'sk-CANARY'], ['--api-key=', 'sk-CANARY']],
      ['verify', 'evidence.json'],
      ['receipts', 'verify', 'frobnicate'],
    ],
    [
      'unknown command "serve" for "privatemode-proxy"; --help lists all commands',
      ...[['serve'], ['--', 'serve']],
    ],
    ['unknown command "frobnicate" for "privatemode-proxy"; --help lists all commands', ['frobnicate']],
    ...['constructor', 'tostring'].map((word): [string, string[]] => [
      `unknown command "${word}" for "privatemode-proxy"; --help lists all commands`,
      [word],
    ]),
    [
      'receipts takes one command before its flags: receipts verify (see receipts --help)',
      ...[['receipts'], ['receipts', 'check'], ['receipts', '--nope', '--help']],
    ],
    [
      'clients takes one command before its flags: clients new NAME, clients list, clients revoke NAME (see clients --help)',
      ...[['clients'], ['clients', 'remove', 'a'], ['clients', '--nope']],
    ],
    [
      'clients takes one command before its flags: clients new NAME (see clients --help)',
      ...[
        ['clients', 'new'],
        ['clients', 'new', ''],
        ['clients', 'new', '--clients', 'c.json', 'a'],
      ],
    ],
    [
      'unknown flag: --requestsPerMinute; --help lists all flags; limits, models and expiry of a client go into the file, ' +
        'beside its tokens (docs/operations.md, "The clients file")',
      ['clients', 'new', 'a', '--requestsPerMinute', '5'],
    ],
    [
      'unexpected argument: every setting is a flag that starts with --; limits, models and expiry of a client go into the file, ' +
        'beside its tokens (docs/operations.md, "The clients file")',
      ['clients', 'new', 'a', 'B'],
    ],
    ['clients list needs the --clients FILE of the proxy', ['clients', 'list']],
    ['clients revoke needs the --clients FILE of the proxy', ['clients', 'revoke', 'a']],
    [
      'NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit',
      ...['a b', '_x', 'a\nb'].map((name) => ['clients', 'new', name]),
    ],
    ...['2026-13-01', '1 2026-12-01', '2026-12-01T00:00:00Z'].map((day): [string, string[]] => [
      `--since wants a day such as 2026-12-01, not "${day}"`,
      ['receipts', 'verify', '--since', day],
    ]),
    ...['2026-13-01', '2026-02-30', 'yesterday', '2026-11-01T00:00:00'].map((day): [string, string[]] => [
      `--until wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "${day}"`,
      ['usage', `--until=${day}`],
    ]),
    ['--since must be earlier than --until', ['usage', '--since=2026-11-02', '--until=2026-11-02']],
    ['--by wants one of client, model, day, not "endpoint"', ['usage', '--by=endpoint']],
    ['--by wants some of client, model, day, and got none', ['usage', '--by=']],
    ['give either --json or --csv, not both', ['usage', '--json', '--csv']],
    ['unknown flag: --wach. Did you mean --watch?', ['status', '--wach']],
    [
      'status asks the admin listener of the proxy: start the proxy with --admin-address 127.0.0.1:9090, and give the same to ' +
        'status (or set PRIVATEMODE_PROXY_ADMIN_ADDRESS for both)',
      ['status'],
    ],
  ];
  for (const [message, ...lines] of alike) {
    for (const argv of lines) {
      it(`${JSON.stringify(argv)}: ${message}`, async () => {
        assert.equal(await told(argv), `Error: ${message}\n`);
      });
    }
  }

  it('one in the environment is told by the name of the variable, by every command that takes it', async () => {
    const port = 'PRIVATEMODE_PROXY_PORT wants a port number from 0 to 65535, not "x"';
    for (const argv of [[], ['verify', '--api-key=k'], ['healthcheck']])
      assert.equal(await told(argv, { PRIVATEMODE_PROXY_PORT: 'x' }), `Error: ${port}\n`);
    const unknown =
      'unknown setting in the environment: PRIVATEMODE_PROXY_PRT. Did you mean PRIVATEMODE_PROXY_PORT?';
    for (const argv of [
      ['status'],
      ['status', '--help'],
      ['healthcheck', '--help'],
      ['verify', '--api-key=k'],
    ])
      assert.equal(await told(argv, { PRIVATEMODE_PROXY_PRT: 'x' }), `Error: ${unknown}\n`);
  });

  const keys: [name: string, content: Buffer][] = [
    ['a byte order mark', Buffer.from('\ufeffk\n')],
    ['UTF-16, as PowerShell writes it', Buffer.from('\ufeffk\r\n', 'utf16le')],
    ['a key that ends like base64', Buffer.from('abcd==')],
  ];
  for (const [name, content] of keys) {
    it(`a key file with ${name} is no mistake`, async () => {
      writeFileSync(join(directory, 'odd.txt'), content);
      assert.equal(await told(['--api-key=@DIR/odd.txt']), '');
    });
  }
});
