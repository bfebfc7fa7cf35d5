import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import type { Config } from '../lib/config/config.ts';
import { PrivatemodeError } from '../lib/errors.ts';
import { VERSION } from '../lib/version.ts';
import { type Ran, type RunOptions, runCommand } from './support/processes/command.ts';
import { eventually } from './support/processes/eventually.ts';
import { cleanEnvironment } from './support/processes/program.ts';

interface Outcome extends Ran {
  readonly ran: readonly [config: Config, warnings: readonly string[]][];
}

async function cli(
  argv: string[],
  run: () => Promise<number> = async () => 0,
  env: Record<string, string> = {},
): Promise<Outcome> {
  const ran: [Config, readonly string[]][] = [];
  const serve: RunOptions['serve'] = (config, warnings) => {
    ran.push([config, warnings]);
    return run();
  };
  return { ...(await runCommand(argv, { env, serve })), ran };
}

describe('the command line', () => {
  it('the proxy is started with the configuration of the flags, and its exit code is returned', async () => {
    const { code, ran, stderr } = await cli(['--port=1234', '--apiKey=k'], async () => 7);
    assert.equal(code, 7);
    assert.equal(ran[0]?.[0].port, 1234);
    assert.ok(ran[0]?.[1].some((warning) => warning.includes('--apiKey is deprecated')));
    assert.equal(stderr, '');
  });

  it('--licenses prints the licence', async () => {
    const { code, stdout, ran } = await cli(['--licenses']);
    assert.deepEqual([code, ran.length], [0, 0]);
    assert.match(stdout, /MIT License[\s\S]*Permission is hereby granted/);
  });

  for (const flag of ['--version', '-v']) {
    it(`${flag} prints the version as the reference does`, async () => {
      const { code, stdout, ran } = await cli([flag]);
      assert.deepEqual([code, stdout, ran.length], [0, `privatemode-proxy version v${VERSION}\n`, 0]);
    });
  }

  const failing = async (): Promise<number> => {
    throw new PrivatemodeError('listen_failed', 'listening on port 8080: EADDRINUSE');
  };

  it('a program that cannot start says why and what to do', async () => {
    const { code, stderr } = await cli([], failing);
    assert.equal(code, 1);
    assert.match(stderr, /^Error: listening on port 8080: EADDRINUSE\. Choose another --port.*\n$/);
  });

  it('an error is printed with escapes for control characters that a terminal would obey', async () => {
    const { stderr } = await cli([], async () => {
      throw new PrivatemodeError('listen_failed', 'no\u202e\u2066 \u009b2J\u2028 port\nnext');
    });
    assert.match(
      stderr,
      /^Error: no\\u\{202e\}\\u\{2066\} \\u\{9b\}2J\\u\{2028\} port\\u\{a\}next\. [^\n]*\n$/,
    );
    const { stderr: unknown } = await cli(['--a\u009b31m\u202e']);
    assert.equal(unknown, 'Error: unknown flag: --a\\u{9b}31m\\u{202e}; --help lists all flags\n');
  });

  const JSON_ENV = { PRIVATEMODE_PROXY_LOG_FORMAT: 'json' };
  const starts: [argv: string[], env: Record<string, string>, code: string | undefined][] = [
    [['--log-format=json'], {}, 'listen_failed'],
    [['--log-format=text', '--log-format=json'], {}, 'listen_failed'],
    [[], JSON_ENV, 'listen_failed'],
    [['--nope', '--log-format=json'], {}, 'config_invalid'],
    [['--log-format=json', '--port'], {}, 'config_invalid'],
    [['--port=1=2'], JSON_ENV, 'config_invalid'],
    [['serve', '--log-format=json'], {}, 'config_invalid'],
    [[], { ...JSON_ENV, PRIVATEMODE_PROXY_PRT: '1' }, 'config_invalid'],
    [['--log-format=json'], { PRIVATEMODE_PROXY_LOG_FORMAT: 'text' }, 'listen_failed'],
    [[], {}, undefined],
    [['--log-format=text'], JSON_ENV, undefined],
    [['--log-format=xml'], JSON_ENV, undefined],
    [['--nope'], { PRIVATEMODE_PROXY_LOG_FORMAT: '' }, undefined],
    [['verify', '--nope', '--log-format=json'], JSON_ENV, undefined],
    [['healthcheck', '--nope', '--log-format=json'], JSON_ENV, undefined],
  ];
  for (const [argv, env, code] of starts) {
    const form = code === undefined ? 'text' : 'one line of JSON';
    it(`a failure of "${argv.join(' ')}" with ${JSON.stringify(env)} in the environment is printed as ${form}`, async () => {
      const outcome = await cli(argv, failing, env);
      assert.deepEqual([outcome.code, outcome.stdout], [1, '']);
      if (code === undefined) {
        assert.match(outcome.stderr, /^Error: /);
        return;
      }
      assert.match(outcome.stderr, /^\{[^\n]*\}\n$/);
      const { time, msg, ...fields } = JSON.parse(outcome.stderr);
      assert.equal(new Date(time).toISOString(), time);
      assert.notEqual(msg, '');
      assert.deepEqual(Object.keys(fields).toSorted(), ['code', 'level', 'remedy']);
      assert.deepEqual([fields.level, fields.code], ['ERROR', code]);
      if (code === 'listen_failed') {
        assert.equal(msg, 'listening on port 8080: EADDRINUSE');
        assert.match(fields.remedy, /^Choose another --port/);
      }
    });
  }

  it('an internal error shows its place in the code and not its message, in a log of either format', async () => {
    const fault = async (): Promise<number> => {
      throw new TypeError('CANARY');
    };
    const [text, json] = [await cli([], fault), await cli(['--log-format=json'], fault)];
    assert.equal(text.code, 1);
    assert.match(text.stderr, /^Error: an internal error occurred\. .*\nTypeError\n\s+at /);
    const { code, err } = JSON.parse(json.stderr);
    assert.equal(code, 'internal');
    assert.match(err, /^TypeError at /);
    for (const { stderr } of [text, json]) assert.ok(!stderr.includes('CANARY'));
  });
});

describe('output that cannot be written', () => {
  const PROGRAM = join(import.meta.dirname, '../bin/privatemode-proxy.ts');
  const shell = (line: string) =>
    spawnSync('/bin/bash', ['-c', line, 'bash', process.execPath, PROGRAM], {
      encoding: 'utf8',
      env: cleanEnvironment(),
    });

  it('a command whose output does not fit on the disk says so, and exits with 1', () => {
    const { status, stderr } = shell('"$1" "$2" completion bash > /dev/full');
    assert.equal(status, 1);
    assert.match(
      stderr,
      /^Error: the output cannot be written \(ENOSPC\): make room for it, or send it elsewhere, and run the command again$/m,
    );
  });

  /** The program with a mebibyte already waiting in that output, which nobody reads yet. */
  function stalled(t: TestContext, output: 'stdout' | 'stderr', ...argv: string[]) {
    const fill = `process.${output}.write('x'.repeat(2 ** 20) + '\\n')`;
    const preload = `data:text/javascript,${encodeURIComponent(fill)}`;
    const child = spawn(process.execPath, ['--import', preload, PROGRAM, ...argv], {
      env: cleanEnvironment(),
    });
    t.after(() => child.kill('SIGKILL'));
    return child;
  }

  for (const [code, flag] of [
    [0, '--version'],
    [1, '--no-such-flag'],
  ] as const) {
    it(`a log that nobody reads neither keeps a program that is over alive, nor changes its exit code ${code}, but the output of a command waits for its reader`, async (t) => {
      const reader = stalled(t, 'stdout', '--version');
      reader.stderr.resume();
      const child = stalled(t, 'stderr', flag);
      await eventually('its end', () => child.exitCode !== null);
      assert.equal(child.exitCode, code);
      assert.equal(reader.exitCode, null);
      const output = await text(reader.stdout);
      assert.ok(output.endsWith(`x\nprivatemode-proxy version v${VERSION}\n`), output.slice(-100));
      await eventually('the end of the other', () => reader.exitCode === 0);
    });
  }

  it('a reader that has what it wants is no failure', () => {
    const { status, stderr } = shell('exec 3> >(true); wait $!; "$1" "$2" --help >&3');
    assert.deepEqual([status, stderr], [0, '']);
  });
});
