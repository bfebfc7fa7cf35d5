/** The likely mistakes of a first hour: what a person reads on the terminal, word for word. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

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
    };
    for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
  });

  /** stderr without the directory's name. */
  async function told(argv: string[]): Promise<string> {
    const { code, stderr } = await runCommand(argv.map((arg) => arg.replace('DIR', directory)));
    assert.equal(code, stderr === '' ? 0 : 1);
    return stderr.replaceAll(directory, 'DIR');
  }

  const mistakes: [argv: string[], stderr: string][] = [
    [['--apikey=k'], 'unknown flag: --apikey. Did you mean --api-key?'],
    [['--api_key=k'], 'unknown flag: --api_key. Did you mean --api-key?'],
    [['--prot=9090'], 'unknown flag: --prot. Did you mean --port?'],
    [['--listen=127.0.0.1'], 'unknown flag: --listen. Did you mean --listen-address?'],
    [['--Workers=2'], 'unknown flag: --Workers. Did you mean --workers?'],
    [
      ['--no-dump-requests'],
      'unknown flag: --no-dump-requests. A boolean is switched off by --dump-requests=false',
    ],
    [['--frobnicate'], 'unknown flag: --frobnicate'],
    [
      ['serve'],
      'unknown command "serve" for "privatemode-proxy". The proxy starts without a command: privatemode-proxy [flags]',
    ],
    [
      ['start', '--port=1'],
      'unknown command "start" for "privatemode-proxy". The proxy starts without a command: privatemode-proxy [flags]',
    ],
    [['verfy'], 'unknown command "verfy" for "privatemode-proxy". Did you mean verify?'],
    [['health'], 'unknown command "health" for "privatemode-proxy". Did you mean healthcheck?'],
    [
      ['--api-key', 'DIR/key.txt'],
      '--api-key is the name of a file here, not a key: write @ in front of it, as in --api-key @key.txt',
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
      'the manifest file "DIR/page.json" is an HTML page, not a manifest; most likely an error page was saved in its place',
    ],
    [['--manifest-path=DIR/empty.json'], 'the manifest file "DIR/empty.json" is empty: not a manifest'],
    [
      ['--manifest-path=DIR/list.json'],
      'the manifest file "DIR/list.json" is not a JSON object: not a manifest',
    ],
    [
      ['--manifest-path=DIR/cut.json'],
      'the manifest file "DIR/cut.json" is not a JSON object: not a manifest',
    ],
    [
      ['--manifest-path=DIR/marked.json'],
      'the manifest file "DIR/marked.json" begins with a byte order mark, which the manifest of the service does not have; ' +
        'save it byte for byte as it was sent',
    ],
    [
      ['--listen-address=:9090'],
      '--listen-address wants a host name or an IP address, not ":9090"; the port goes into --port 9090',
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
    [['-api-key', 'k'], "unknown shorthand flag: 'a' (long flags take two dashes)"],
    [['--port=:9090'], '--port wants a port number from 0 to 65535, not ":9090"'],
    [
      ['--api-endpoint=https://api.example'],
      '--api-endpoint wants HOST or HOST:PORT without a scheme or path, not "https://api.example"',
    ],
    [
      ['--dump-requests', 'true'],
      'unexpected argument after --dump-requests: a boolean is written --dump-requests=true or =false',
    ],
    [['--api-endpoint=:443'], '--api-endpoint wants HOST or HOST:PORT, not ":443"'],
    [['--workers=all'], '--workers wants a whole number of at least 1, or auto, not "all"'],
    [['--workers=0'], '--workers wants a whole number of at least 1, or auto, not "0"'],
    [['--api-key=@'], '--api-key names no file behind the @: write @FILE, as in --api-key @key.txt'],
    [
      ['usage', '--since=2026-13-01'],
      '--since wants a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z, not "2026-13-01"',
    ],
  ];
  for (const [argv, message] of mistakes) {
    it(`${argv.join(' ')}: ${message}`, async () => {
      assert.equal(await told(argv), `Error: ${message}\n`);
    });
  }

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
