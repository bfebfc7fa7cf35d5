/** Several instances on one port, by the template unit and the commands of docs/team.md. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ROOT } from '../../support/processes/tools.ts';
import { type Remote, startRemote } from '../../support/remote/remote.ts';
import { binary, HOST } from '../support/built.ts';
import { blockOf } from '../support/install-blocks.ts';
import { streamsUnderLoad, tally } from '../support/streams-under-load.ts';
import { type Machine, machineFor, REMOTE } from '../support/systemd.ts';

const PORT = 28_767;
/** In place of 909%i, which may be taken here. */
const ADMIN_PORTS = '2877';
const CHECKOUT = '/srv/checkout';
/** Of the network that the machine shares with this one. */
const MIGRATE = '/proc/sys/net/ipv4/tcp_migrate_req';

describe('instances on one port under systemd', { timeout: 600_000 }, () => {
  let remote: Remote;
  let machine: Machine;
  before(async () => {
    remote = await startRemote();
    const variables = [
      `PRIVATEMODE_PROXY_PORT=${PORT}`,
      `PRIVATEMODE_PROXY_API_ENDPOINT=localhost:${remote.simulator.port}`,
      `PRIVATEMODE_PROXY_MANIFEST_PATH=${REMOTE}/manifest.json`,
      `SSL_CERT_FILE=${REMOTE}/ca.pem`,
      'PRIVATEMODE_PROXY_SHUTDOWN_DELAY=1s',
    ];
    // The flag that trusts a simulator has no variable, so the command line gets it.
    const start = `ExecStart=\nExecStart=privatemode-proxy --unsafe-trust-roots=${REMOTE}/roots`;
    const admin = `Environment=PRIVATEMODE_PROXY_ADMIN_ADDRESS=127.0.0.1:${ADMIN_PORTS}%i`;
    machine = await machineFor(remote, {
      '/usr/local/bin/privatemode-proxy': { copy: binary(HOST) },
      [`${CHECKOUT}/deploy/systemd`]: { copy: join(ROOT, 'deploy/systemd') },
      '/etc/privatemode-proxy/api-key': 'test-key\n',
      '/etc/privatemode-proxy/instances': `${variables.join('\n')}\n`,
      '/etc/systemd/system/privatemode-proxy@.service.d/checks.conf': `[Service]\n${start}\n${admin}\nStandardError=append:/run/%i.log\n`,
    });
    // As the unit without instances leaves its state, of the same dynamic user.
    await machine.run('mkdir', '-p', '/var/lib/private/privatemode-proxy');
    await machine.run('ln', '-s', 'private/privatemode-proxy', '/var/lib/privatemode-proxy');
  });
  after(async () => {
    await machine?.close();
    await remote.close();
  });

  const INSTANCES = ['1', '2'].map((name) => ({ name, unit: `privatemode-proxy@${name}.service` }));
  const logs = (): Promise<string> => machine.run('sh', '-c', 'cat /run/1.log /run/2.log || :');

  it('are started by the commands of the page, as one user with a workspace each, and each says that it is ready', async () => {
    const commands = blockOf('team.md', 'instances').replaceAll(':909', `:${ADMIN_PORTS}`);
    await machine.run('bash', '-euc', `cd ${CHECKOUT}\n${commands}`);
    const users = new Set<string>();
    for (const { name, unit } of INSTANCES) {
      assert.equal(await machine.property(unit, 'ActiveState'), 'active', await logs());
      const pid = await machine.property(unit, 'MainPID');
      users.add(await machine.run('stat', '-c', '%u', `/proc/${pid}`));
      const history = await machine.run('cat', `/var/lib/privatemode-proxy-${name}/manifests/log.txt`);
      assert.equal(history.trim().split('\n').length, 1);
    }
    assert.equal(users.size, 1);
    assert.doesNotMatch([...users].join(), /^0\n/);
  });

  it('complete all of 120 streams while each is restarted twice', async (t) => {
    const before = readFileSync(MIGRATE, 'utf8');
    t.after(() => writeFileSync(MIGRATE, before));
    const setting = /^echo net\.ipv4\.tcp_migrate_req=(1) /m.exec(blockOf('team.md', 'instances-migrate'))!;
    writeFileSync(MIGRATE, setting[1]!);
    const load = streamsUnderLoad({ port: PORT, count: 120, everyMs: 100, model: 'sim-20x50' });
    const processes = new Set<string>();
    for (const { unit } of [...INSTANCES, ...INSTANCES]) {
      processes.add(await machine.property(unit, 'MainPID'));
      await delay(300);
      await machine.run('systemctl', 'restart', unit);
    }
    assert.deepEqual(tally(await load), { complete: 120 }, await logs());
    assert.equal(processes.size, 4);
  });
});
