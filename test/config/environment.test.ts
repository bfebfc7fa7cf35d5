import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseArgv } from '../../lib/config/argv.ts';
import { variableOf, withEnvironment } from '../../lib/config/environment.ts';
import { FLAGS } from '../../lib/config/flags.ts';
import { parsed, refused } from '../support/doors/config.ts';

/** Service links of a Service privatemode-proxy, and of one privatemode-proxy-metrics. */
const OF_OTHERS = {
  ...{ PRIVATEMODE_PROXY_SERVICE_HOST: '10.0.0.7', PRIVATEMODE_PROXY_SERVICE_PORT_HTTP: '8080' },
  ...{ PRIVATEMODE_PROXY_PORT: 'tcp://10.0.0.7:8080', PRIVATEMODE_PROXY_PORT_8080_TCP_ADDR: '10.0.0.7' },
  ...{ PRIVATEMODE_PROXY_METRICS_SERVICE_HOST: '10.0.0.8', PRIVATEMODE_PROXY_METRICS_SERVICE_PORT: '9090' },
  ...{ PRIVATEMODE_PROXY_METRICS_PORT: 'tcp://10.0.0.8:9090', PRIVATEMODE_PROXY_METRICS_PORT_9090_TCP: 'x' },
  ...{ PRIVATEMODE_PROXY_URL: 'http://localhost:8080', PRIVATEMODE_ENDPOINT: 'x' },
};

describe('settings in the environment', () => {
  it('each flag has a variable, except flags such as --help, retired ones and --unsafe-trust-roots', () => {
    const example = { boolean: 'true', integer: '1', duration: '1s', list: 'x', string: 'x' } as const;
    const taken = FLAGS.filter(({ name, type }) => {
      try {
        return withEnvironment(parseArgv([]), { [variableOf(name)]: example[type] }).values.has(name);
      } catch {
        return false;
      }
    }).map(({ name }) => name);
    const others = ['help', 'version', 'licenses', 'unsafe-trust-roots'];
    const retired = ['ssEndpoint', 'coordinatorEndpoint'];
    const expected = FLAGS.map(({ name }) => name).filter((name) => ![...others, ...retired].includes(name));
    assert.deepEqual(taken, expected);
  });

  it('a variable sets a flag that is not given, and has the syntax of that flag', () => {
    const { config, warnings } = parsed(
      ['--listen-address=127.0.0.1'],
      {},
      {
        PRIVATEMODE_API_KEY: 'from-the-environment',
        PRIVATEMODE_PROXY_PORT: '9090',
        PRIVATEMODE_PROXY_DUMP_REQUESTS: '1',
        PRIVATEMODE_PROXY_API_KEY_FALLBACK: 'never',
        PRIVATEMODE_PROXY_STREAM_IDLE_TIMEOUT: '90s',
      },
    );
    assert.equal(config.apiKey?.key, 'from-the-environment');
    assert.deepEqual([config.port, config.dumpRequests, config.streamIdleTimeout], [9090, true, 90_000]);
    assert.deepEqual(warnings, [
      '--dump-requests writes every prompt and every answer to the workspace in plain text',
    ]);
  });

  it('PRIVATEMODE_API_KEY names a file by @FILE, as --api-key does', () => {
    const { config } = parsed([], { 'key.txt': 'k\n' }, { PRIVATEMODE_API_KEY: '@key.txt' });
    assert.equal(config.apiKey?.path, 'key.txt');
  });

  it('an empty variable counts as unset', () => {
    const { config } = parsed([], {}, { PRIVATEMODE_API_KEY: '', PRIVATEMODE_PROXY_PORT: '' });
    assert.deepEqual([config.apiKey, config.port], [undefined, 8080]);
  });

  for (const [used, argv, env] of [
    ['--api-key', ['--api-key=k'], {}],
    ['PRIVATEMODE_PROXY_API_KEY', [], { PRIVATEMODE_PROXY_API_KEY: 'k' }],
  ] as [string, string[], Record<string, string>][])
    it(`the proxy warns if ${used} and PRIVATEMODE_API_KEY are both set`, () => {
      const { config, warnings } = parsed(argv, {}, { PRIVATEMODE_API_KEY: 'l', ...env });
      assert.ok(warnings.includes(`${used} and PRIVATEMODE_API_KEY are both set; ${used} is used`));
      assert.equal(config.apiKey?.key, 'k');
    });

  it('variables that Kubernetes sets for Services, and those of applications, set nothing and warn of nothing', () => {
    const { config, warnings } = parsed([], {}, OF_OTHERS);
    assert.deepEqual([config, warnings], [parsed([]).config, parsed([]).warnings]);
  });

  const wrong: [env: Record<string, string>, message: string][] = [
    [
      { PRIVATEMODE_PROXY_DUMP_REQUESTS: 'ja' },
      'PRIVATEMODE_PROXY_DUMP_REQUESTS wants true or false, not "ja"',
    ],
    ...['MANFEST_PTH', 'manifest-path', 'ManifestPath'].map((name): [Record<string, string>, string] => [
      { [`PRIVATEMODE_PROXY_${name}`]: 'm.json' },
      `unknown setting in the environment: PRIVATEMODE_PROXY_${name}. Did you mean PRIVATEMODE_PROXY_MANIFEST_PATH?`,
    ]),
    ...['ADMIN_PORT', 'UNSAFE_TRUST_ROOTS', 'HELP'].map((name): [Record<string, string>, string] => [
      { [`PRIVATEMODE_PROXY_${name}`]: 'x' },
      `unknown setting in the environment: PRIVATEMODE_PROXY_${name}; --help lists all settings`,
    ]),
  ];
  for (const [env, message] of wrong)
    it(`the proxy refuses to start: ${message}`, () => {
      const told = refused(() => parsed([], {}, env), []);
      assert.equal(told, message);
    });
});
