/** Which test files `npm test` leaves to `npm run test:all`, and which run alone: the tables that scripts/test.ts goes by. */

/**
 * Files that prove again what others prove, through another door, engine or environment, by path or directory; with what only they
 * prove. CONTRIBUTING.md has the same rows.
 */
export const REPEATED: Readonly<Record<string, string>> = {
  'test/client/second-door.test.ts':
    'the tests of the gateway pass through the client library, with both engines: how it aborts, and how its responses end',
  'test/crypto/portable-engine.test.ts':
    'the tests of attestation, envelope, session and pipeline pass with the portable engine',
  'test/limits/valkey.test.ts': 'limits shared by several replicas are counted in Valkey as in Redis',
  'test/faults/sdk.test.ts':
    'each fault of the matrix through both majors of the official clients: the whole answer, or an error that is raised',
  'test/faults/scenarios.test.ts':
    'faults of processes, disks and networks under load: the proxy recovers, and says what happened',
  'test/client/browser.test.ts': 'the client library runs in Chromium',
  'test/e2e/browser.test.ts': 'a web page in Chromium reaches the gateway, by CORS and streams',
  'test/observe/status-page-browser.test.ts':
    'the status page in Chromium: what it shows, and that it is accessible',
  'test/packaging/':
    'chart, Compose file, units, alert rules and the Dockerfile are valid, and systemd runs the program',
};

/** Files that measure time, memory or the event loop: they run one after the other, once all else is done; with what they measure. */
export const ALONE: Readonly<Record<string, string>> = {
  'test/attestation/verify-properties.test.ts': 'how long a verdict holds the event loop',
  'test/client/browser.test.ts': 'the pace of a stream in a browser',
  'test/client/one-exchange.test.ts': 'memory of a large response; the pace of a stream',
  'test/applications/aborts.test.ts': 'how soon the service sees that a client left',
  'test/e2e/browser.test.ts': 'the pace of a stream in a browser',
  'test/e2e/chat.test.ts': 'the pace of a stream',
  'test/gateway/early-refusals.test.ts': 'how soon a refused upload ends',
  'test/gateway/hostile-bodies.test.ts': 'memory of hostile bodies',
  'test/gateway/hostile-load.test.ts': 'memory, and how long others wait',
  'test/gateway/hostile-pieces.test.ts': 'memory, and how long one turn takes',
  'test/gateway/shutdown.test.ts': 'how long the grace of a shutdown is, and how soon a drain ends',
  'test/gateway/time-limits.test.ts': 'the time limits of an exchange',
  'test/pipeline/memory.test.ts': 'memory of long events and of short chunks',
  'test/clients/authenticate.test.ts': 'how long a wrong token takes',
  'test/clients/gateway.test.ts': 'memory, and how soon a change of clients holds',
  'test/clients/processes.test.ts': 'how soon workers hear of a change',
};

/** Whether a table names the file, or a directory above it. */
export const isIn = (table: Readonly<Record<string, string>>, file: string): boolean =>
  Object.keys(table).some((path) => file === path || (path.endsWith('/') && file.startsWith(path)));
