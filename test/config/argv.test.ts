import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { parseArgv } from '../../lib/config/argv.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { FLAGS } from '../../lib/config/flags.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { parsed, refused } from '../support/doors/config.ts';

const valuesOf = (...argv: string[]): Record<string, string> => Object.fromEntries(parseArgv(argv).values);

describe('the parser of arguments follows pflag', () => {
  const understood: [name: string, argv: string[], values: Record<string, string>][] = [
    ['--x v', ['--port', '1'], { port: '1' }],
    ['--x=v', ['--port=1'], { port: '1' }],
    ['a value with an equals sign', ['--api-key=a=b'], { 'api-key': 'a=b' }],
    ['an empty value by =', ['--api-key=', '--port=1'], { 'api-key': '', port: '1' }],
    ['an empty value as an argument', ['--api-key', ''], { 'api-key': '' }],
    ['a string takes an argument that starts with a dash', ['--api-key', '-abc'], { 'api-key': '-abc' }],
    ['a string takes a double dash', ['--api-key', '--', '--port=1'], { 'api-key': '--', port: '1' }],
    ['the last one wins', ['--port=1', '--port', '2'], { port: '2' }],
    ['the last one wins across spellings', ['--apiKey=a', '--api-key=b'], { 'api-key': 'b' }],
    [
      'lists add up',
      ['--cors-allowed-origins=a', '--cors-allowed-origins', 'b,c'],
      { 'cors-allowed-origins': 'a,b,c' },
    ],
    ['-l v', ['-l', 'v'], { 'log-level': 'v' }],
    ['-lv', ['-lv'], { 'log-level': 'v' }],
    ['-l=v', ['-l=v'], { 'log-level': 'v' }],
    ['-l takes a dash', ['-l', '-4'], { 'log-level': '-4' }],
    ['letters run together', ['-hl', 'v'], { help: 'true', 'log-level': 'v' }],
    ['a bare boolean', ['--dump-requests'], { 'dump-requests': 'true' }],
    ['a double dash with nothing after it', ['--port=1', '--'], { port: '1' }],
    ['an opposite boolean', ['--sharedPromptCache'], { 'disable-prompt-cache': 'false' }],
    ['an opposite boolean with a value', ['--sharedPromptCache=0'], { 'disable-prompt-cache': 'true' }],
  ];
  for (const [name, argv, values] of understood) it(name, () => assert.deepEqual(valuesOf(...argv), values));

  const booleans = {
    true: ['1', 't', 'T', 'TRUE', 'true', 'True'],
    false: ['0', 'f', 'F', 'FALSE', 'false', 'False'],
  };
  for (const [value, words] of Object.entries(booleans))
    it(`a boolean flag is ${value} with each of ${words}`, () => {
      for (const word of words) assert.equal(valuesOf(`--dump-requests=${word}`)['dump-requests'], value);
    });
});

describe('older spellings', () => {
  const OPPOSITE = 'disable-prompt-cache (which says the opposite)';
  const deprecated: [old: string, now: string, text: string, value?: string][] = [
    ['apiEndpoint', 'api-endpoint', 'localhost:1'],
    ['apiKey', 'api-key', 'k'],
    ['dumpRequests', 'dump-requests', 'true'],
    ['manifestPath', 'manifest-path', 'm'],
    ['nvidiaOCSPAllowUnknown', 'gpu-ocsp-allow-unknown', 'false'],
    ['nvidiaOCSPRevokedGracePeriod', 'gpu-ocsp-revoked-grace-period', '1'],
    ['promptCacheSalt', 'prompt-cache-salt', 's'],
    ['tlsCertPath', 'tls-cert-path', 'c'],
    ['tlsKeyPath', 'tls-key-path', 'k'],
    ['cdnBaseURL', 'cdn-base-url', 'u'],
    ['sharedPromptCache', OPPOSITE, 'true', 'false'],
  ];
  for (const [old, now, text, value = text] of deprecated)
    it(`--${old} sets --${now}, with a warning`, () => {
      const { values, warnings } = parseArgv([`--${old}=${text}`]);
      assert.equal(values.get(now.split(' ')[0] as string), value);
      assert.deepEqual(warnings, [`--${old} is deprecated; write --${now}`]);
    });

  for (const name of ['nvidia-ocsp-allow-unknown', 'nvidia-ocsp-revoked-grace-period'])
    it(`--${name} is an alias that gives no warning`, () => {
      const { values, warnings } = parseArgv([`--${name}=0`]);
      assert.deepEqual([[...values.keys()], warnings], [[name.replace('nvidia', 'gpu')], []]);
    });

  for (const name of ['ssEndpoint', 'coordinatorEndpoint'])
    it(`--${name} warns and does nothing`, () => {
      const { config, warnings } = parsed([`--${name}`, 'somewhere:1']);
      assert.deepEqual(config, parsed([]).config);
      assert.ok(warnings.some((words) => words.startsWith(`--${name} is retired and does nothing: `)));
    });

  it('--insecureAPIConnection, which switches off certificate checks, is refused', () =>
    void refused(() => parsed(['--insecureAPIConnection']), ['unknown flag: --insecureAPIConnection']));
});

describe('any command line', () => {
  const names = FLAGS.flatMap((flag) => [
    `--${flag.name}`,
    ...(flag.aliases ?? []).map(({ name }) => `--${name}`),
  ]);
  const value = fc.oneof(
    ...[fc.string(), fc.double().map(String), fc.bigInt().map(String), fc.webUrl()],
    fc
      .tuple(fc.double({ min: 0, max: 1e9 }), fc.constantFrom('ms', 's', 'm', 'h', 'd'))
      .map((pair) => pair.join('')),
    fc.tuple(fc.domain(), fc.nat(99_999)).map((pair) => pair.join(':')),
  );
  const pair = fc.tuple(fc.constantFrom(...names), value).map(([name, given]) => `${name}=${given}`);
  const word = fc.oneof(
    fc.constantFrom(...names, '-l', '-h', '--', '-'),
    pair,
    fc.string({ unit: 'binary' }),
  );
  const line = fc.oneof(
    pair.map((one) => [one]),
    fc.array(word, { maxLength: 6 }),
  );

  it('gives a configuration whose numbers are finite, or a typed error', () => {
    fc.assert(
      fc.property(line, (argv) => {
        try {
          const { config } = parseConfig(argv, {}, () => new Uint8Array());
          for (const [setting, read] of Object.entries(config))
            assert.ok(typeof read !== 'number' || Number.isFinite(read), `${setting} is ${read}`);
        } catch (thrown) {
          assert.ok(thrown instanceof PrivatemodeError, String(thrown));
          assert.ok(['config_invalid', 'unsafe_roots_refused'].includes(thrown.code));
        }
      }),
      { seed: 20261121, numRuns: 2_000 },
    );
  });

  it('keeps the value of a string flag as it was given, whatever characters it holds', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.boolean(), (text, apart) => {
        const argv = apart ? ['--api-key', text] : [`--api-key=${text}`];
        assert.equal(parseArgv([...argv, '--port=1']).values.get('api-key'), text);
      }),
      { seed: 20261121, numRuns: 1_000 },
    );
  });
});
