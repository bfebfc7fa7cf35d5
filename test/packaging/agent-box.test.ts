/**
 * The rules of examples/devcontainer, in network namespaces: the proxy is the only way out of the one with
 * the agent.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parse } from 'yaml';
import { program } from '../support/processes/foreign-programs.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const EXAMPLE = join(ROOT, 'examples/devcontainer');
const NFT = program('nft', { from: 'scripts/install-system-tools.sh' });
const IP = program('ip', { from: 'scripts/install-system-tools.sh' });
const skip = NFT.skip || IP.skip || (process.getuid?.() === 0 ? false : 'NOT CHECKED: namespaces need root');

const PROXY = '172.30.88.2';
const GATEWAY = '172.30.88.1';
const FAR = '10.211.7.1';
const PROXY_V6 = 'fd00:88::2';

/** What the agent tries: TCP, or UDP to see an answer. */
const TRIES: readonly (readonly ['tcp' | 'udp', address: string, port: number])[] = [
  ['tcp', PROXY, 8080],
  ['tcp', PROXY, 8081],
  ['tcp', PROXY, 443],
  ['tcp', GATEWAY, 8080],
  ['tcp', FAR, 8080],
  ['tcp', FAR, 443],
  ['tcp', PROXY_V6, 8080],
  ['udp', FAR, 53],
  ['udp', PROXY, 8080],
  ['udp', PROXY_V6, 53],
];

/** Echoes on all ports of TRIES, TCP and UDP, on every address. */
const SERVER = `
  const net = require('node:net'), dgram = require('node:dgram');
  let open = 0;
  const ready = () => { if (++open === 6) console.log('ready'); };
  for (const port of [8080, 8081, 443]) net.createServer((s) => s.on('error', () => {}).end('x')).listen(port, '::', ready);
  for (const port of [53, 8080, 443]) {
    const socket = dgram.createSocket('udp6');
    socket.on('message', (text, from) => socket.send(text, from.port, from.address)).bind(port, '::', ready);
  }`;

/** Prints each try that got an answer. */
const PROBE = `
  const net = require('node:net'), dgram = require('node:dgram');
  const tries = JSON.parse(process.argv[1]);
  const one = ([kind, address, port, patience]) => new Promise((done) => {
    const timer = setTimeout(() => done(false), patience);
    const ended = (answer) => { clearTimeout(timer); done(answer); };
    if (kind === 'tcp') {
      const socket = net.connect({ host: address, port }, () => { socket.destroy(); ended(true); });
      socket.on('error', () => ended(false));
      return;
    }
    const socket = dgram.createSocket(address.includes(':') ? 'udp6' : 'udp4').unref();
    socket.on('error', () => ended(false)).on('message', () => ended(true));
    socket.send('x', port, address, (error) => error && ended(false));
  });
  Promise.all(tries.map(one)).then((answers) => {
    console.log(JSON.stringify(tries.filter((_, at) => answers[at]).map((each) => each.slice(0, 3).join(' '))));
    process.exit(0);
  });`;

describe('an agent in the box of examples/devcontainer', { skip }, () => {
  const id = process.pid;
  const [box, world] = [`box-${id}`, `world-${id}`];
  const ip = (...args: string[]): void => {
    const { status, stderr } = run(IP.path, args);
    assert.equal(status, 0, `ip ${args.join(' ')}: ${stderr}`);
  };
  /** The tries that get an answer; those that `expected` names have more time for it. */
  const reached = (expected: readonly string[]): string[] => {
    const tries = TRIES.map((each) => [...each, expected.includes(each.join(' ')) ? 20_000 : 1_000]);
    const command = ['netns', 'exec', box, process.execPath, '-e', PROBE, JSON.stringify(tries)];
    const { status, stdout, stderr } = run(IP.path, command);
    assert.equal(status, 0, stderr);
    return JSON.parse(stdout);
  };
  let server: ReturnType<typeof spawn> | undefined;

  before(async () => {
    for (const name of [box, world]) ip('netns', 'add', name);
    ip('link', 'add', `b${id}`, 'netns', box, 'type', 'veth', 'peer', 'name', `w${id}`, 'netns', world);
    for (const [name, link] of [
      [box, `b${id}`],
      [world, `w${id}`],
    ] as const)
      for (const device of ['lo', link]) ip('-n', name, 'link', 'set', device, 'up');
    ip('-n', box, 'address', 'add', '172.30.88.3/24', 'dev', `b${id}`);
    ip('-n', box, '-6', 'address', 'add', 'fd00:88::3/64', 'dev', `b${id}`, 'nodad');
    for (const address of [`${PROXY}/24`, `${GATEWAY}/24`, `${FAR}/24`])
      ip('-n', world, 'address', 'add', address, 'dev', `w${id}`);
    ip('-n', world, '-6', 'address', 'add', `${PROXY_V6}/64`, 'dev', `w${id}`, 'nodad');
    ip('-n', box, 'route', 'add', 'default', 'via', GATEWAY);
    server = spawn(IP.path, ['netns', 'exec', world, process.execPath, '-e', SERVER], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(server.stdout as NonNullable<typeof server.stdout>, 'data');
  });
  after(() => {
    server?.kill('SIGKILL');
    for (const name of [box, world]) run(IP.path, ['netns', 'delete', name]);
  });

  it('reaches every tried address before box.nft is loaded, which proves that the attempts work', () => {
    const all = TRIES.map((each) => each.join(' '));
    assert.deepEqual(reached(all), all);
  });

  it('reaches only the proxy once box.nft is loaded, also after it is loaded twice', () => {
    for (const _ of [1, 2]) {
      const { status, stderr } = run(IP.path, [
        'netns',
        'exec',
        box,
        NFT.path,
        '--file',
        join(EXAMPLE, 'box.nft'),
      ]);
      assert.equal(status, 0, stderr);
      const expected = [`tcp ${PROXY} 8080`];
      assert.deepEqual(reached(expected), expected);
    }
  });
});

describe('the Compose file of an agent in a box', () => {
  const { services, networks } = parse(readFileSync(join(EXAMPLE, 'compose.yaml'), 'utf8'));

  it('gives the agent the network of the box, no capability, and the proxy address that box.nft allows', () => {
    const { agent, proxy, box } = services;
    assert.equal(agent.network_mode, 'service:box');
    assert.deepEqual([agent.cap_drop, agent.cap_add, agent.networks], [['ALL'], undefined, undefined]);
    assert.deepEqual(agent.depends_on, { box: { condition: 'service_healthy' } });
    assert.deepEqual(Object.keys(box.networks), ['inside']);
    assert.equal(networks.inside.internal, true);
    assert.equal(proxy.networks.inside.ipv4_address, PROXY);
    assert.equal(agent.environment.ANTHROPIC_BASE_URL, `http://${PROXY}:8080`);
    assert.match(readFileSync(join(EXAMPLE, 'agent.Dockerfile'), 'utf8'), /^USER node$/m);
  });
});
