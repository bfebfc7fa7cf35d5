import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../../support/processes/eventually.ts';
import { ROOT } from '../../support/processes/tools.ts';
import { type Remote, startRemote } from '../../support/remote/remote.ts';
import { binary, HOST } from '../support/built.ts';
import { blockOf, installBlock } from '../support/install-blocks.ts';
import { streamsUnderLoad, tally } from '../support/streams-under-load.ts';
import { type Machine, machineFor, REMOTE } from '../support/systemd.ts';

const SERVICE = 'privatemode-proxy.service';
const SOCKET = 'privatemode-proxy.socket';
const LOG = '/run/proxy.log';
const PORTS = { system: 28_765, user: 28_766 };
/** Where the administrator stands: the executable, the units, and a key. */
const CHECKOUT = '/srv/checkout';
const USER = { id: '1000', home: '/run/developer', runtime: '/run/user/1000' };

/**
 * What the checks change: the roots, by a flag that has no variable; the port, which may be taken here, a
 * watchdog in a hurry, a short time to stop, and where the log goes.
 */
const dropIns = (etc: string, port: number, log: string, program: string): Record<string, string> => ({
  [`${etc}/${SOCKET}.d/port.conf`]: `[Socket]\nListenStream=\nListenStream=127.0.0.1:${port}\n`,
  [`${etc}/${SERVICE}.d/checks.conf`]: `[Service]\nExecStart=\nExecStart=${program} --unsafe-trust-roots=${REMOTE}/roots\nWatchdogSec=5s\nRestartSec=100ms\nTimeoutStopSec=10s\nStandardError=append:${log}\n`,
});

const environment = (remote: Remote): string =>
  [
    'PRIVATEMODE_PROXY_RECEIPTS=true',
    `PRIVATEMODE_PROXY_API_ENDPOINT=localhost:${remote.simulator.port}`,
    `PRIVATEMODE_PROXY_MANIFEST_PATH=${REMOTE}/manifest.json`,
    `SSL_CERT_FILE=${REMOTE}/ca.pem`,
    '',
  ].join('\n');

describe('the service under systemd', { timeout: 600_000 }, () => {
  let remote: Remote;
  let machine: Machine;
  before(async () => {
    remote = await startRemote();
    machine = await machineFor(remote, {
      [`${CHECKOUT}/privatemode-proxy`]: { copy: binary(HOST) },
      [`${CHECKOUT}/deploy/systemd`]: { copy: join(ROOT, 'deploy/systemd') },
      [`${CHECKOUT}/key.txt`]: 'test-key\n',
      ...dropIns('/etc/systemd/system', PORTS.system, LOG, 'privatemode-proxy'),
      ...dropIns('/etc/systemd/user', PORTS.user, '%t/proxy.log', '%h/.local/bin/privatemode-proxy'),
      '/etc/privatemode-proxy/environment': environment(remote),
    });
  });
  after(async () => {
    await machine?.close();
    await remote.close();
  });

  const mainProcess = async (): Promise<number> => {
    const pid = Number(await machine.property(SERVICE, 'MainPID'));
    assert.ok(pid > 1, `the service does not run: ${await log()}`);
    return pid;
  };
  const log = (): Promise<string> =>
    machine.run('sh', '-c', `cat ${LOG}; systemctl status --no-pager ${SERVICE} || :`);
  const streams = async (port: number, count = 3) =>
    tally(await streamsUnderLoad({ port, count, everyMs: 5, model: 'sim-5x10' }));

  /** The lines that docs/install.md ends with, asked of another port. */
  const isRunning = (port: number): Promise<string> =>
    machine.run('bash', '-euc', installBlock('running').replaceAll(':8080/', `:${port}/`));

  it('is installed and started by the commands of docs/install.md', async () => {
    const status = await machine.run('bash', '-euc', `cd ${CHECKOUT}\n${installBlock('systemd')}`);
    assert.match(status, /Active: active \(running\)/);
    assert.match(await isRunning(PORTS.system), /"object":\s*"list"/);
    assert.equal(await machine.run('stat', '-c', '%a %U', '/etc/privatemode-proxy/api-key'), '600 root\n');
    assert.equal((await machine.run('systemctl', 'is-enabled', SOCKET, SERVICE)).trim(), 'enabled\nenabled');
    await machine.run('systemctl', 'stop', SOCKET, SERVICE);
  });

  it('is started by the first connection to its socket', async () => {
    await machine.run('systemctl', 'start', SOCKET);
    assert.equal(await machine.property(SERVICE, 'ActiveState'), 'inactive');
    assert.deepEqual(
      await streams(PORTS.system),
      { complete: 3 },
      await machine.run('cat', '/run/proxy.log'),
    );
    assert.equal(await machine.property(SERVICE, 'ActiveState'), 'active');
    assert.equal(
      await machine.property(SERVICE, 'StatusText'),
      `listening on http://127.0.0.1:${PORTS.system}`,
    );
  });

  it('runs as a user of its own without capabilities, and reads the key from the credentials of the unit', async () => {
    const status = await machine.run('cat', `/proc/${await mainProcess()}/status`);
    assert.match(status, /^CapBnd:\s+0+$/m);
    assert.match(status, /^CapEff:\s+0+$/m);
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
    assert.doesNotMatch(status, /^Uid:\s+(0|1000)\s/m);
    const variables = await machine.run('cat', `/proc/${await mainProcess()}/environ`);
    assert.match(variables, /API_KEY=@\/run\/credentials\/privatemode-proxy\.service\/api-key/);
  });

  it('logs manifests and writes receipts in its state directory, as its own user and with a key of that user', async () => {
    const history = await machine.run('cat', '/var/lib/privatemode-proxy/manifests/log.txt');
    assert.equal(history.trim().split('\n').length, 1);
    const receipts = '/var/lib/privatemode-proxy/receipts';
    const checked = await machine.run(
      'sh',
      '-c',
      `privatemode-proxy receipts verify --dir ${receipts} || [ $? = 35 ]`, // roots of a simulator
    );
    assert.match(checked, /Every signature and chain holds/);
    const owners = await machine.run('sh', '-c', `stat -c %u ${receipts} ${receipts}/* | sort -u`);
    assert.match(owners, /^[1-9]\d+\n$/, 'one owner, not root');
  });

  it('keeps its process and serves streams after a reload', async () => {
    const before = await mainProcess();
    assert.equal(await machine.property(SERVICE, 'NRestarts'), '0');
    await machine.run('systemctl', 'reload', SERVICE);
    assert.deepEqual(await streams(PORTS.system), { complete: 3 });
    assert.equal(await mainProcess(), before);
  });

  it('completes all of 200 streams while it is restarted three times', async () => {
    const load = streamsUnderLoad({ port: PORTS.system, count: 200, everyMs: 30, model: 'sim-20x50' });
    const processes = new Set([await mainProcess()]);
    for (let i = 0; i < 3; i++) {
      await delay(300);
      await machine.run('systemctl', 'restart', SERVICE);
      processes.add(await mainProcess());
    }
    assert.deepEqual(tally(await load), { complete: 200 });
    assert.equal(processes.size, 4);
  });

  it('has the time of --shutdown-grace to stop, longer than TimeoutStopSec of the unit', async () => {
    const load = streamsUnderLoad({ port: PORTS.system, count: 1, everyMs: 2_000, model: 'sim-20x1000' });
    await delay(300);
    await machine.run('systemctl', 'restart', SERVICE);
    assert.deepEqual(tally(await load), { complete: 1 });
  });

  it('is restarted by the watchdog if it hangs', async () => {
    const hanging = await mainProcess();
    await machine.run('kill', '-s', 'STOP', String(hanging));
    const restarted = async (): Promise<boolean> => Number(await machine.property(SERVICE, 'NRestarts')) > 0;
    await eventually('the watchdog', restarted, 120_000, 100);
    assert.deepEqual(await streams(PORTS.system), { complete: 3 });
    assert.notEqual(await mainProcess(), hanging);
  });

  it('stops with the exit code 0 and without a warning', async () => {
    await machine.run('systemctl', 'stop', SOCKET, SERVICE);
    assert.equal(await machine.property(SERVICE, 'Result'), 'success');
    assert.equal(await machine.property(SERVICE, 'ExecMainStatus'), '0');
    assert.doesNotMatch(await log(), /service manager cannot be told|Warning/);
  });

  it('serves a team over TLS on all addresses by the commands of docs/team.md', async () => {
    // Another port, by a drop-in that comes after that of the checks.
    const unit = blockOf('team.md', 'team-systemd')
      .replace('network.conf', 'team.conf')
      .replace('=8080', `=${PORTS.system}`);
    const commands = [blockOf('team.md', 'team-certificate'), blockOf('team.md', 'team-tokens'), unit];
    await machine.run('bash', '-euc', `cd ${CHECKOUT}\n${commands.join('\n')}`);
    // An address of this machine that is not 127.0.0.1.
    const url = `https://127.0.0.2:${PORTS.system}/readyz`;
    const retry = ['--retry', '20', '--retry-all-errors', '--fail'];
    await machine.run('curl', '--insecure', '--silent', '--show-error', ...retry, url);
    await machine.run('systemctl', 'stop', SOCKET, SERVICE);
    assert.equal(await machine.property(SERVICE, 'Result'), 'success');
  });

  it('serves under the units for a user, without root, and reads a new key when it is reloaded', async () => {
    const own = `${USER.home}/.config/privatemode-proxy`;
    await machine.run('mkdir', '-p', own, USER.runtime);
    await machine.run('cp', '/etc/privatemode-proxy/environment', own);
    await machine.run('chown', '-R', `${USER.id}:${USER.id}`, USER.home, USER.runtime);
    const as = ['--uid', USER.id, '--gid', USER.id];
    const set = [`HOME=${USER.home}`, `XDG_RUNTIME_DIR=${USER.runtime}`].map(
      (variable) => `--setenv=${variable}`,
    );
    await machine.run(
      'systemd-run',
      ...as,
      ...set,
      '--property=Delegate=yes',
      '--unit=manager',
      '/lib/systemd/systemd',
      '--user',
    );
    const asUser = (...command: string[]): Promise<string> =>
      machine.run(
        ...['setpriv', '--reuid', USER.id, '--regid', USER.id, '--clear-groups', 'env'],
        ...[`HOME=${USER.home}`, `XDG_RUNTIME_DIR=${USER.runtime}`],
        ...command,
      );
    const systemctl = (...args: string[]): Promise<string> => asUser('systemctl', '--user', ...args);
    const isThere = (): Promise<boolean> =>
      systemctl('list-units').then(
        () => true,
        () => false,
      );
    await eventually('the manager of the user', isThere, 30_000, 100);
    await asUser('bash', '-euc', `cd ${CHECKOUT}\n${installBlock('systemd-user')}`);
    await isRunning(PORTS.user);
    assert.deepEqual(await streams(PORTS.user), { complete: 3 });
    assert.match(await systemctl('show', '--property=StatusText', SERVICE), /listening on/);
    await machine.run('sh', '-c', `echo next-key > ${own}/api-key`);
    await systemctl('reload', SERVICE);
    const readAgain = async (): Promise<boolean> =>
      (await machine.run('cat', `${USER.runtime}/proxy.log`)).includes('The API key file was read again');
    await eventually('the new key', readAgain, 4_000, 100); // by itself it looks every five seconds
    assert.deepEqual(await streams(PORTS.user), { complete: 3 });
    // systemd moved the state of users to another directory in version 254
    const history = await machine.run('sh', '-c', `cat $(find ${USER.home} -name log.txt)`);
    assert.match(history, /1\.json\n$/);
    await systemctl('stop', SOCKET, SERVICE);
  });
});
