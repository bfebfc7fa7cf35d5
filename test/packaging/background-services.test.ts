/**
 * The ways in for macOS and Windows. Neither is here: their files are parsed, and what they start is read as
 * the proxy reads it.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parsed } from '../support/doors/config.ts';
import { python } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const PYTHON = python();
const PLIST = join(ROOT, 'deploy/launchd/privatemode-proxy.plist');

/** Keys of launchd.plist(5) with the type of each; what launchd does not know it passes over in silence. */
const KNOWN: Readonly<Record<string, string>> = {
  Label: 'string',
  ProgramArguments: 'array of strings',
  EnvironmentVariables: 'dictionary of strings',
  RunAtLoad: 'boolean',
  KeepAlive: 'dictionary of booleans',
  ExitTimeOut: 'integer',
  Umask: 'integer',
  ProcessType: 'string',
};

interface Plist {
  readonly Label: string;
  readonly ProgramArguments: readonly string[];
  readonly EnvironmentVariables: Readonly<Record<string, string>>;
  readonly RunAtLoad: boolean;
  readonly KeepAlive: Readonly<Record<string, boolean>>;
  readonly ExitTimeOut: number;
  readonly Umask: number;
}

/** A property list as Python's own parser reads it; throws where it does not. */
function readPlist(source: string): Plist {
  const program =
    'import json, plistlib, sys; json.dump(plistlib.loads(sys.stdin.buffer.read(), fmt=plistlib.FMT_XML), sys.stdout)';
  const { status, stdout, stderr } = run(PYTHON.path, ['-c', program], { input: source });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Plist;
}

function typeOf(value: unknown): string {
  if (Array.isArray(value)) return `array of ${elements(value)}`;
  if (typeof value === 'object' && value !== null) return `dictionary of ${elements(Object.values(value))}`;
  return Number.isInteger(value) ? 'integer' : typeof value;
}

const elements = (values: readonly unknown[]): string =>
  [...new Set(values.map((value) => `${typeOf(value)}s`))].join(' and ');

if (PYTHON.skip === false) {
  describe('deploy/launchd/privatemode-proxy.plist', () => {
    const source = readFileSync(PLIST, 'utf8');

    it('is a property list of keys that launchd knows, each with a value of the right type', () => {
      const plist = readPlist(source);
      assert.deepEqual(
        Object.fromEntries(Object.entries(plist).map(([key, value]) => [key, typeOf(value)])),
        KNOWN,
      );
      assert.throws(() => readPlist(source.replace('2&gt;&gt;', '2>>&')), 'the parser would notice bad XML');
    });

    it('replaces its shell by the proxy, with flags it accepts, and with files and log in the home of the user', () => {
      const plist = readPlist(source);
      const home = temporaryDirectory('home of a user ');
      const [program, ...args] = plist.ProgramArguments as [string, ...string[]];
      run('mkdir', ['-p', join(home, 'Library/Logs'), join(home, 'bin')]);
      const arguments_ = join(home, 'arguments');
      // Stands in for the proxy: writes down how it was called, by whom, and says something in its log.
      const proxy = `#!/bin/sh\nprintf '%s\\n' "$PPID" "$@" > "$HOME/arguments"\necho started >&2\n`;
      writeFileSync(join(home, 'bin/privatemode-proxy'), proxy, { mode: 0o755 });
      const path = `${home}/bin:${plist.EnvironmentVariables['PATH']}`;
      const { status, stderr } = run(program, args, { env: { HOME: home, PATH: path } });
      assert.deepEqual([status, stderr], [0, '']);
      assert.equal(readFileSync(join(home, 'Library/Logs/privatemode-proxy.log'), 'utf8'), 'started\n');

      const [parent, ...flags] = readFileSync(arguments_, 'utf8').trimEnd().split('\n');
      assert.equal(Number(parent), process.pid, 'no shell stays between launchd and the proxy');
      const key = join(home, '.config/privatemode-proxy/api-key');
      const { config } = parsed(flags, { [key]: 'key' });
      assert.equal(config.apiKey?.kind, 'file');
      assert.equal(config.listenAddress, '127.0.0.1');
      assert.equal(config.workspace, join(home, 'Library/Application Support/privatemode-proxy'));
      assert.ok(plist.ExitTimeOut * 1000 >= config.shutdownGrace + 10_000);
    });

    it('restarts the proxy only after a failure, and sets the umask 077', () => {
      const plist = readPlist(source);
      assert.equal(plist.RunAtLoad, true);
      assert.deepEqual(plist.KeepAlive, { SuccessfulExit: false });
      assert.equal(plist.Umask, 0o077);
    });

    it('has the name that docs/install.md loads and unloads', () => {
      const page = readFileSync(join(ROOT, 'docs/install.md'), 'utf8');
      const { Label } = readPlist(source);
      assert.ok(page.includes(`launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/${Label}.plist`));
      assert.ok(page.includes(`launchctl bootout gui/$(id -u)/${Label}`));
    });
  });
}

describe('the Windows service of docs/install.md', () => {
  it('starts the proxy with flags it accepts, and kills it 10 s after its shutdown grace at the earliest', () => {
    const page = readFileSync(join(ROOT, 'docs/install.md'), 'utf8');
    const [, xml] = /^```xml\n(<service>[^`]+)```$/m.exec(page) as unknown as [string, string];
    const value = (name: string): string => new RegExp(`<${name}>([^<]+)</${name}>`).exec(xml)![1] as string;
    const [script, ...flags] = value('arguments').split(' ') as [string, ...string[]];
    assert.match(script, /\\privatemode-proxy\.js$/);
    const { config } = parsed(flags, { 'C:\\privatemode-proxy\\api-key': 'key' });
    assert.equal(config.apiKey?.kind, 'file');
    assert.equal(config.listenAddress, '127.0.0.1');
    assert.equal(config.workspace, 'C:\\privatemode-proxy\\workspace');
    assert.ok(Number(/^(\d+)sec$/.exec(value('stoptimeout'))?.[1]) * 1000 >= config.shutdownGrace + 10_000);
  });
});
