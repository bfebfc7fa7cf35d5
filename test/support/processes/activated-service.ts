/**
 * A service manager in small: it keeps a listening socket open and starts the proxy on it, again and again.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { eventually } from './eventually.ts';
import { cleanEnvironment } from './program.ts';

/**
 * Holds the socket as descriptor 3 and takes orders. The variables name the process that gets it, so each
 * start goes through a shell that knows its own number (sd_listen_fds(3)).
 */
const KEEPER = `
start() { sh -c 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"' sh "$@" & pid=$!; }
trap 'kill -s KILL $pid 2>/dev/null' EXIT
stop() { kill -s "$signal" $pid; wait $pid; echo "ended $?"; }
while read -r order signal; do
  case $order in
    start) start "$@" ;;
    stop) stop ;;
    restart) stop; start "$@" ;;
  esac
done
`;

export interface ActivatedService {
  readonly port: number;
  /** Resolves when the new process has said that it listens. */
  start(): Promise<void>;
  /** Resolves, when the new process listens, with the exit code of the old one. */
  restart(): Promise<number>;
  /** Resolves with the exit code. Signal 0 only waits for the end. */
  stop(signal?: 'TERM' | 'KILL' | '0'): Promise<number>;
  readonly log: () => string;
  /** Closes the socket, and kills what is still running. */
  close(): Promise<void>;
}

/** Opens a port for `command`, which is not started yet. */
export async function createActivatedService(
  command: readonly string[],
  env: Record<string, string>,
  host = '127.0.0.1',
): Promise<ActivatedService> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen({ port: 0, host, backlog: 4096 }, resolve));
  const { port } = server.address() as AddressInfo;
  const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
  const keeper = spawn('bash', ['-c', KEEPER, 'keeper', ...command], {
    env: cleanEnvironment(env),
    stdio: ['pipe', 'pipe', 'pipe', fd],
  });
  server.close(); // the keeper has it now, and accepts nothing
  let log = '';
  keeper.stderr?.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  const answers = createInterface({ input: keeper.stdout! });
  const order = async (words: string): Promise<number> => {
    keeper.stdin!.write(`${words}\n`);
    const [answer] = (await once(answers, 'line')) as [string];
    return Number(answer.replace('ended ', ''));
  };
  let starts = 0;
  const listening = async (): Promise<void> => {
    starts++;
    const said = (): number => (log.match(/Starting HTTP/g) ?? []).length;
    await eventually(
      () => `the start of the service:\n${log}`,
      () => said() >= starts,
      30_000,
    );
  };
  return {
    port,
    async start() {
      keeper.stdin!.write('start\n');
      await listening();
    },
    async restart() {
      const code = await order('restart TERM');
      await listening();
      return code;
    },
    stop: (signal = 'TERM') => order(`stop ${signal}`),
    log: () => log,
    async close() {
      keeper.stdin!.end();
      if (keeper.exitCode === null) await once(keeper, 'exit');
    },
  };
}
