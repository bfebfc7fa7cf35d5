/** The yardstick: http-proxy-3 in front of the same upstream over TLS, and nothing else. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Agent } from 'node:https';
import type { AddressInfo } from 'node:net';
import { ProxyServer } from 'http-proxy-3';

const [port, caFile] = process.argv.slice(2) as [string, string];
const agent = new Agent({
  keepAlive: true,
  maxFreeSockets: 256,
  ca: readFileSync(caFile),
});
const proxy = new ProxyServer({
  target: {
    protocol: 'https:',
    host: 'localhost',
    hostname: 'localhost',
    port: Number(port),
  },
  secure: true,
  changeOrigin: true,
  agent,
});
proxy.on('error', (_error, _request, response) => response?.destroy());
const server = createServer({ noDelay: true, keepAliveTimeout: 75_000 }, (request, response) => {
  proxy.web(request, response);
});
server.listen(0, '127.0.0.1', () => {
  process.send?.({
    type: 'ready',
    port: (server.address() as AddressInfo).port,
  });
});
process.once('disconnect', () => process.exit());
process.once('SIGTERM', () => process.exit());
