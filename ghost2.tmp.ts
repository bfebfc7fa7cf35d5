import { connect as tcp } from 'node:net';
import { connect } from 'node:tls';
import { listen } from './lib/listener/listen.ts';
import { createTestAuthority } from './test/support/remote/tls-authority.ts';
import { setTimeout as delay } from 'node:timers/promises';
const tls = createTestAuthority('a').issue(['localhost']);
let open = 0, reqs = 0;
const listener = await listen({ listenAddress: '127.0.0.1', port: 0, tls, fd: undefined }, (req, res) => {
  open++; reqs++;
  res.once('close', () => open--);
  setImmediate(()=>{res.write('x'); setTimeout(() => res.end('x'.repeat(100)), 10)});
});
for (let i = 0; i < 200; i++) {
  const raw = tcp(listener.port, '127.0.0.1');
  const s = connect({ socket: raw, rejectUnauthorized: false });
  s.on('error', () => {});
  await new Promise<void>((r) => s.once('secureConnect', () => {
    s.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    setImmediate(() => { raw.resetAndDestroy(); r(); });
  }));
}
await delay(1000);
console.log({ reqs, open });
for (let i = 0; i < 15; i++) { await delay(2000); console.log(i, open, (listener as any).connections?.()); if (open === 0) break; }
process.exit(0);
