/** The likely mistakes of a first hour: what a person reads on the terminal, word for word. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { AGENT_NAMES } from '../../lib/commands/agents.ts';
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
      'single.txt': "'k'\n",
      'named.txt': 'PRIVATEMODE_API_KEY=k\n',
      'exported.txt': 'export API_KEY="k"\n',
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

  const mistakes: [argv: string[], stderr: string][] = [
    [['--apikey=k'], 'unknown flag: --apikey. Did you mean --api-key?'],
    [['--api_key=k'], 'unknown flag: --api_key. Did you mean --api-key?'],
    [['--prot=9090'], 'unknown flag: --prot. Did you mean --port?'],
    [['--listen=x'], 'unknown flag: --listen. Write --listen-address 127.0.0.1'],
    [['--verbose'], '--verbose goes with --version; for more lines in the log set --log-level=debug'],
    [['verify', '--verbos'], 'unknown flag: --verbos. Did you mean --verbose?'],
    [['receipts', 'verify', '--host=x'], 'unknown flag: --host; --help lists all flags'],
    [
      ['--config', 'proxy.yaml'],
      'unknown flag: --config. Write --api-key @FILE and the other settings as flags, or as variables PRIVATEMODE_PROXY_…: there is no file of settings',
    ],
    [['--api-key=<html>'], '--api-key holds a page or markup, not a key'],
    [
      ['--api-key=$KEY'],
      '--api-key begins with $: the shell did not replace the variable; use double quotes',
    ],
    [
      ['--api-key', 'k', 'run', 'claude'],
      'unknown command "run" for "privatemode-proxy". A command comes first: run and then its flags',
    ],
    [['--api-key=Bearer sk'], '--api-key begins with "Bearer", which is no part of the key: leave it out'],
    [
      ['verify', 'proof'],
      'unexpected argument "proof": every setting is a flag that starts with --; a service is given with --api-endpoint HOST:PORT, and the files of a saved exchange with --saved DIR, or with --evidence, --nonce and --manifest, as its README.txt says',
    ],
    [
      ['receipts', 'verify', 'frobnicate'],
      'unexpected argument "frobnicate": every setting is a flag that starts with --; a directory is given as --dir DIR',
    ],
    [
      ['usage', 'a/receipts'],
      'unexpected argument "a/receipts": every setting is a flag that starts with --; a directory is given as --dir DIR',
    ],
    [
      ['clients', 'new', '--clients', 'c.json', 'a'],
      'clients new needs a NAME before its flags: clients new NAME… (see clients new --help)',
    ],
    [
      ['clients', 'revoke'],
      'clients revoke needs a NAME before its flags: clients revoke NAME (see clients revoke --help)',
    ],
    [['--Workers=2'], 'unknown flag: --Workers. Did you mean --workers?'],
    [
      ['--no-dump-requests'],
      'unknown flag: --no-dump-requests. A boolean is switched off by --dump-requests=false',
    ],
    [['--Port=1'], 'unknown flag: --Port. Did you mean --port?'],
    ...['start', 'serve', 'up'].map((word): [string[], string] => [
      [word, '--port=1'],
      `unknown command "${word}" for "privatemode-proxy". The proxy starts without a command: leave out "${word}"`,
    ]),
    [
      ['--', '--api-key', '@key.txt'],
      '--api-key stands behind --, where no flag counts: leave out the -- in front of it',
    ],
    [['--', '--port=1'], '--port stands behind --, where no flag counts: leave out the -- in front of it'],
    ...['8080 ', ' 8080', '8080\n'].map((text): [string[], string] => [
      [`--port=${text}`],
      `--port wants a port number from 0 to 65535, not ${JSON.stringify(text)}; leave out the blank or line break around it`,
    ]),
    [
      ['--max-body-bytes=10MB'],
      '--max-body-bytes wants a whole number of at least 1, without a unit, not "10MB"; it is a number of bytes',
    ],
    [
      ['healthcheck', 'http://127.0.0.1:18081/readyz'],
      'unexpected argument "http://127.0.0.1:18081/readyz": every setting is a flag that starts with --; the proxy to ask is named by its --listen-address HOST and --port PORT',
    ],
    [
      ['healthcheck', 'http://127.0.0.1:18081/sk-CANARY'],
      'unexpected argument: every setting is a flag that starts with --; the proxy to ask is named by its --listen-address HOST and --port PORT',
    ],
    [
      ['verify', '--save=DIR'],
      'verify asks the live service, which needs --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a saved exchange instead, name its directory with --saved DIR, or its files with --evidence, --nonce and --manifest (see verify --help)',
    ],
    [
      ['clients', 'new', 'ann,bob'],
      'NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit, not "ann,bob"; several names are separated by blanks',
    ],
    [
      ['clients', 'revoke', 'ann', '--clients=DIR/gone.json'],
      'failed to read the file of --clients, DIR/gone.json: ENOENT: no such file or directory; check the path, and in a container what is mounted',
    ],
    [
      ['clients', 'list', '--clients=DIR/key.txt'],
      '--clients DIR/key.txt: not JSON at character 0, in line 1 ("privatemode-proxy clients new NAME --clients FILE" makes such a file)',
    ],
    ...['2026-11-31', '2026-02-29'].flatMap((day): [string[], string][] => {
      const days = `${day.slice(0, 7)} has ${day.startsWith('2026-11') ? 30 : 28} days`;
      return [
        [
          ['usage', `--until=${day}`],
          `--until wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "${day}"; ${days}`,
        ],
        [
          ['receipts', 'verify', '--since', day],
          `--since wants a day such as 2026-12-01, not "${day}"; ${days}`,
        ],
      ];
    }),
    [
      ['usage', '--until=2026-11-30 '],
      '--until wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "2026-11-30 "; leave out the blank or line break around it',
    ],
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
    [['--api-key="k'], '--api-key has a quote at one end: leave it out'],
    [
      ['verify', '--api-endpoint=h', '--saved=DIR'],
      '--api-endpoint is for the live service, but --saved is for a saved exchange; leave one of them out',
    ],
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
      'the manifest file "DIR/page.json" of --manifest-path is an HTML page, most likely an error page, not a manifest; fetch it again, and save it byte for byte as it was sent',
    ],
    [
      ['--manifest-path=DIR/empty.json'],
      'the manifest file "DIR/empty.json" of --manifest-path is empty: not a manifest; fetch it again, and save it byte for byte as it was sent',
    ],
    [
      ['--manifest-path=DIR/list.json'],
      'the manifest file "DIR/list.json" of --manifest-path is not a JSON object: not a manifest; fetch it again, and save it byte for byte as it was sent',
    ],
    [
      ['--manifest-path=DIR/cut.json'],
      'the manifest file "DIR/cut.json" of --manifest-path is not a JSON object: not a manifest; fetch it again, and save it byte for byte as it was sent',
    ],
    [
      ['--manifest-path=DIR/package.json'],
      'the manifest file "DIR/package.json" of --manifest-path has no member Policies: not a manifest; fetch it again, and save it byte for byte as it was sent',
    ],
    [
      ['--manifest-path=DIR/marked.json'],
      'the manifest file "DIR/marked.json" of --manifest-path begins with a byte order mark, which the manifest of the service does not have; ' +
        'fetch it again, and save it byte for byte as it was sent',
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
    [['-p', '8080'], "unknown shorthand flag: 'p' (write --port)"],
    [['-k', 'sk-CANARY'], "unknown shorthand flag: 'k' (write --api-key)"],
    [['-x'], "unknown shorthand flag: 'x' (long flags take two dashes, and --help lists them)"],
    [['verify', '-m', 'x'], "unknown shorthand flag: 'm' (write --model-alias)"],
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
      ['--api-key=@~/key.txt'],
      'failed to read API key file "~/key.txt" of --api-key: ENOENT: no such file or directory; the shell replaces ~ only at the beginning of a word: write $HOME in place of ~',
    ],
    [
      ['verify', '--api-key=k', '--save=~/proof'],
      '--save begins with ~: the shell replaces ~ only at the beginning of a word: write $HOME in place of ~',
    ],
    [
      ['verify', '--api-key=k', '--save=DIR/key.txt'],
      '--save: DIR/key.txt cannot be written: ENOTDIR: a file stands where a directory is needed; check the path',
    ],
    [
      ['verify', '--api-key=k', '--save=DIR/key.txt/below'],
      '--save: DIR/key.txt/below cannot be written: ENOTDIR: a file stands where a directory is needed; check the path',
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
      ['--admin-address=::1'],
      '--admin-address wants HOST:PORT, not "::1"; write [::1]:9090, or another port',
    ],
    [
      ['--admin-address=[::1]'],
      '--admin-address wants HOST:PORT, not "[::1]"; write [::1]:9090, or another port',
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
      ['--dump-requests', 'sk-CANARY'],
    ],
    ...['true', 'false'].map((word): [string, string[]] => [
      `unexpected argument "${word}" after --dump-requests: a boolean is written --dump-requests=true or =false`,
      ['--dump-requests', word],
    ]),
    [
      'unexpected argument "rr" after --json: a boolean is written --json=true or =false; a directory is given as --dir DIR',
      ...[
        ['usage', '--json', 'rr'],
        ['receipts', 'verify', '--json', 'rr'],
      ],
    ],
    [
      'unexpected argument "8080": every setting is a flag that starts with --; a port is given as --port 8080',
      ['--listen-address', '127.0.0.1', '8080'],
    ],
    ['unexpected argument "foo" after --version, which takes none: leave it out', ['version', 'foo']],
    ['unexpected argument after --version, which takes none: leave it out', ['version', 'sk-CANARY']],
    [
      'unexpected argument "b": several values of --by are joined by commas, as in --by A,B; put quotes around *',
      ['usage', '--by', 'a', 'b'],
    ],
    ['unexpected argument "zsh": leave it out; nothing follows here', ['completion', 'bash', 'zsh']],
    ...['127.0.0.1:9090', '[::1]:9090', 'http://box:9090'].flatMap((address): [string, string[]][] => [
      [
        `unexpected argument "${address}": every setting is a flag that starts with --; the proxy to ask is named by its --admin-address HOST:PORT`,
        ['status', address],
      ],
      [
        `unexpected argument "${address}": every setting is a flag that starts with --; the proxy to ask is named by its --listen-address HOST and --port PORT`,
        ['healthcheck', address],
      ],
    ]),
    [
      'unexpected argument: every setting is a flag that starts with --; the proxy to ask is named by its --admin-address HOST:PORT',
      ...[
        ['status', 'sk-CANARY'],
        ['status', 'sk.CANARY:1'],
      ],
    ],
    [
      '–port begins with a long dash, which web pages make of two hyphens: write --port with two hyphens',
      ...[['–port', '8080'], ['—port=8080'], ['-–port', '1'], ['healthcheck', '−−port', '1'], ['–-port=1']],
    ],
    [
      'an argument begins with a long dash, which web pages make of two hyphens: write --NAME with two hyphens',
      ...[['–sk-CANARY'], ['usage', '–port', '1'], ['—']],
    ],
    [
      'unexpected argument: every setting is a flag that starts with --; a key in a file is given as --api-key @FILE',
      ...[['-'], [''], ['sk-CANARY'], ['--', 'sk-CANARY'], ['--api-key=', 'sk-CANARY']],
    ],
    [
      'unknown command "serve" for "privatemode-proxy". The proxy starts without a command: leave out "serve"',
      ...[['serve'], ['--', 'serve']],
    ],
    ['unknown command "frobnicate" for "privatemode-proxy"; --help lists all commands', ['frobnicate']],
    ...['constructor', 'tostring'].map((word): [string, string[]] => [
      `unknown command "${word}" for "privatemode-proxy"; --help lists all commands`,
      [word],
    ]),
    [
      'receipts takes one command before its flags: receipts verify, receipts rotate-key (see receipts --help)',
      ...[['receipts'], ['receipts', '--nope', '--help']],
    ],
    [
      'clients takes one command before its flags: clients new NAME…, clients list, clients revoke NAME (see clients --help)',
      ...[['clients'], ['clients', '--nope']],
    ],
    [
      'clients new needs a NAME before its flags: clients new NAME… (see clients new --help)',
      ...[
        ['clients', 'new'],
        ['clients', 'new', ''],
      ],
    ],
    [
      'unknown flag: --requestsPerMinute; --help lists all flags; limits, models and expiry of a client go into the file, ' +
        'beside its tokens (docs/clients-file.md)',
      ['clients', 'new', 'a', '--requestsPerMinute', '5'],
    ],
    [
      'unexpected argument "B": every setting is a flag that starts with --; give NAME before all flags (new takes several, revoke one, list none), and the file as --clients FILE; limits, models and expiry of a client go into the file, ' +
        'beside its tokens (docs/clients-file.md)',
      ['clients', 'revoke', 'a', 'B'],
    ],
    ['the name "a" is given twice: give each name once', ['clients', 'new', 'a', 'b', 'a']],
    ['clients list needs the --clients FILE of the proxy', ['clients', 'list']],
    ['clients revoke needs the --clients FILE of the proxy', ['clients', 'revoke', 'a']],
    ...[
      ['a b', '"a b"'],
      ['_x', '"_x"'],
      ['a\nb', '"a\\\\u{a}b"'],
    ].map(([name = '', quoted = '']): [string, string[]] => [
      `NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit, not ${quoted}`,
      ['clients', 'new', name],
    ]),
    [
      'clients has no command "remove"; it takes one command before its flags: clients new NAME…, clients list, clients revoke NAME (see clients --help)',
      ['clients', 'remove', 'a'],
    ],
    [
      'receipts has no command "check"; it takes one command before its flags: receipts verify, receipts rotate-key (see receipts --help)',
      ['receipts', 'check'],
    ],
    ['unknown flag: --Listen_Address. Did you mean --listen-address?', ['--Listen_Address=x']],
    [
      '--listen-address wants a host name or an IP address, not "http://127.0.0.1"; write 127.0.0.1 alone, without a scheme',
      ['--listen-address=http://127.0.0.1'],
    ],
    ...['2026-13-01', '1 2026-12-01', '2026-12-01T00:00:00Z'].map((day): [string, string[]] => [
      `--since wants a day such as 2026-12-01, not "${day}"`,
      ['receipts', 'verify', '--since', day],
    ]),
    ...['2026-13-01', '2026-02-00', 'yesterday', '2026-11-01T00:00:00'].map((day): [string, string[]] => [
      `--until wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "${day}"`,
      ['usage', `--until=${day}`],
    ]),
    [
      '--since 2026-11-02T00:00:00.000Z must be earlier than --until 2026-11-02T00:00:00.000Z: swap them, or leave one out',
      ['usage', '--since=2026-11-02', '--until=2026-11-02'],
    ],
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

  /**
   * What is used of a flag that is given more than once, and what is said of it; flags that may be repeated
   * say nothing.
   */
  const repeated: [argv: string[], warning: string | undefined][] = [
    [['--port=1', '--port=2'], '--port is given more than once, and only the last counts: 2 is used'],
    [
      ['--log-level=x', '-l', 'y', '-lz'],
      '--log-level is given more than once, and only the last counts: z is used',
    ],
    [
      ['--dump-requests', '--dump-requests=false'],
      '--dump-requests is given more than once, and only the last counts: false is used',
    ],
    ...['api-key', 'prompt-cache-salt', 'limits-store'].map((name): [string[], string] => [
      [`--${name}=sk-CANARY`, `--${name}`, 'sk-CANARY2'],
      `--${name} is given more than once, and only the last counts: the last one is used`,
    ]),
    [
      ['--cdn-base-url=https://a', '--cdn-base-url=https://u:CANARY@b'],
      '--cdn-base-url is given more than once, and only the last counts: the last one is used',
    ],
    [['--port=1', '--port=1'], undefined],
    [['--model-alias=a=b', '--model-alias=c=d'], undefined],
  ];
  for (const [argv, warning] of repeated) {
    it(`${argv.join(' ')}: ${warning ?? 'no warning'}`, async () => {
      assert.deepEqual(parseArgv(argv).warnings, warning === undefined ? [] : [warning]);
      const { stderr } = await runCommand(['healthcheck', '--listen-address=unix:/nowhere', ...argv]);
      assert.equal(stderr.includes('given more than once'), warning !== undefined, stderr);
      assert.ok(!stderr.includes('CANARY'));
    });
  }

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
        'TLS certificate and key must be provided together: give both --tls-cert-path and --tls-key-path, or neither',
      ],
      [
        [],
        'TLS certificate and key must be provided together: give both --tls-cert-path and PRIVATEMODE_PROXY_TLS_KEY_PATH, or neither',
      ],
    ] as const) {
      const env = { PRIVATEMODE_PROXY_TLS_KEY_PATH: 'k' };
      assert.equal(await told(argv, argv.length === 0 ? env : {}), `Error: ${message}\n`);
    }
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
    it(`a key file with ${name} is accepted`, async () => {
      writeFileSync(join(directory, 'odd.txt'), content);
      assert.equal(await told(['--api-key=@DIR/odd.txt']), '');
    });
  }
});
