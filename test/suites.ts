/**
 * Which test files `npm test` leaves to `npm run test:all`, which of them run again through another door or
 * engine, and which need a process of their own: the tables that scripts/test.ts goes by.
 */

export const DOORS = ['proxy', 'library'] as const;
export const ENGINES = ['node', 'portable'] as const;

/** What tests run through: which way into the gateway, and whose cryptography (lib/crypto). */
export interface Through {
  readonly door: (typeof DOORS)[number];
  readonly engine: (typeof ENGINES)[number];
}

/** The variables of scripts/test.ts that lead there; empty for the proxy with the cryptography of Node. */
export const variablesOf = ({ door, engine }: Through): string =>
  [
    ...(door === 'proxy' ? [] : [`TEST_DOOR=${door}`]),
    ...(engine === 'node' ? [] : [`TEST_ENGINE=${engine}`]),
  ].join(' ');

/**
 * What only the proxy has, and why nobody can ask the library for it: why tests are skipped behind the
 * library's door.
 */
export const PROXY_ALONE = {
  'caller keys': 'callers of the library bring no key of their own: its key is an option',
  counters: 'the library keeps no counters and writes no log: it tells its application',
  listener: 'the library listens nowhere, so other processes cannot reach it',
  sockets: 'the fetch below decides whether an answer survives the reset that comes with it',
} as const;

/** How the reason begins why a test is skipped with the portable engine. */
export const NODE_ALONE = 'about node:crypto alone: ';

/** Whether a test may be skipped for this reason, through that door and engine. */
export const maySkip = ({ door, engine }: Through, reason: string): boolean =>
  (door === 'library' && Object.values<string>(PROXY_ALONE).includes(reason)) ||
  (engine === 'portable' && reason.startsWith(NODE_ALONE));

/** Files that run once more through another door or engine. */
export interface Run extends Through {
  /** For CONTRIBUTING.md. */
  readonly proves: string;
  /** Files and directories. */
  readonly paths: readonly string[];
}

/**
 * Files that show how the library keeps and sends what is secret: they run behind its door with both engines.
 */
const WITH_BOTH_ENGINES = [
  'test/applications/anthropic.test.ts',
  'test/applications/openai.test.ts',
  'test/applications/responses.test.ts',
  'test/e2e/gateway-attacks.test.ts',
];

export const RUNS: readonly Run[] = [
  {
    door: 'library',
    engine: 'node',
    proves: 'the tests of the gateway pass through the client library: how its responses end',
    paths: [...WITH_BOTH_ENGINES, 'test/applications/errors.test.ts', 'test/faults/matrix.test.ts'],
  },
  {
    door: 'library',
    engine: 'portable',
    proves: 'so do those of clients and attacks where its cryptography is the one for browsers',
    paths: WITH_BOTH_ENGINES,
  },
  {
    door: 'proxy',
    engine: 'portable',
    proves:
      'the tests of attestation, cryptography, envelope, session and pipeline pass with the portable engine',
    paths: ['test/attestation/', 'test/crypto/', 'test/envelope/', 'test/pipeline/', 'test/session/'],
  },
];

/**
 * Files that prove again what others prove, in another environment, by path or directory; with what only they
 * prove. CONTRIBUTING.md has the same rows.
 */
export const REPEATED: Readonly<Record<string, string>> = {
  'test/applications/sdk-settings.test.ts':
    'the settings of docs/applications.md as they stand there, with the JavaScript and the Python SDKs',
  'test/e2e/demo.test.ts': 'the demo from its start to its end, by itself, with a signal, and with an agent',
  'test/limits/valkey.test.ts': 'limits shared by several replicas are counted in Valkey as in Redis',
  'test/faults/scenarios.test.ts':
    'no file descriptor left, or a full disk: the proxy recovers, or sends nothing',
  'test/client-library/browser.test.ts': 'the client library runs in Chromium',
  'test/e2e/browser.test.ts': 'a web page in Chromium reaches the gateway, by CORS and streams',
  'test/observe/status-page-browser.test.ts':
    'the status page in Chromium does not look verified once nobody says so',
  'test/packaging/':
    'chart, Compose file, units, alert rules and the Dockerfile are valid, and systemd runs the program',
};

/**
 * Files and directories that need a process for each file, with the reason. Of each directory all others
 * share one process (test/together.ts).
 */
export const BY_ITSELF: Readonly<Record<string, string>> = {
  'test/client-library/browser.test.ts': 'it starts a browser',
  'test/client-library/wire.test.ts': 'it fixes all that is random in its process',
  'test/e2e/': 'whole programs, which would wait for each other',
  'test/limits/valkey.test.ts': 'it loads other files at its top level',
  'test/packaging/': 'it runs programs of others',
  'test/gateway/path-cost.test.ts': 'it counts what the process makes',
  'test/gateway/slow-readers.test.ts': 'it fills the buffers of many connections',
  'test/config/inherited-socket.test.ts': 'it starts the program',
  'test/pipeline/encrypt-body.test.ts': 'it looks for what the garbage collector keeps',
  'test/pipeline/event-limits.test.ts': 'it measures memory',
};

/** Whether one of the paths is the file, or a directory above it. */
const covers = (paths: readonly string[], file: string): boolean =>
  paths.some((path) => file === path || (path.endsWith('/') && file.startsWith(path)));

/** Whether a table names the file, or a directory above it. */
export const isIn = (table: Readonly<Record<string, string>>, file: string): boolean =>
  covers(Object.keys(table), file);

/** Those of the files that a run runs. */
export const filesOf = ({ paths }: Run, files: readonly string[]): string[] =>
  files.filter((file) => covers(paths, file));
