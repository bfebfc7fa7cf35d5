/** A whole proxy whose way to the outside a test decides, and a simulated deployment at its end. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { parseConfig } from '../../../lib/config/config.ts';
import { startProxy } from '../../../lib/proxy.ts';
import type { SimulatorOptions } from '../../../simulator/simulator.ts';
import { askChat } from '../doors/ask-chat.ts';
import { recordingLogger } from '../doors/logger.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { startTestSimulator } from './simulator.ts';

/** Flags that send the three paths to three authorities `HOST[:PORT]`. */
export const hostsAt = (api: string, cdn: string, vendor: string): string[] => [
  `--api-endpoint=${api}`,
  `--cdn-base-url=https://${cdn}`,
  `--amd-kds-url=https://${vendor}`,
];

/**
 * Evidence comes without a revocation list unless told otherwise, so that the vendor has to be asked. Cleans
 * up after `t`.
 */
export async function outboundScene(t: TestContext, options: SimulatorOptions = {}) {
  const directory = temporaryDirectory('outbound-');
  const simulator = await startTestSimulator({ directory, faults: { 'evidence-no-crl': true }, ...options });
  t.after(() => simulator.close());
  let files = 0;
  return {
    simulator,
    directory,
    /** PEM texts as a file for SSL_CERT_FILE. */
    bundle(...pems: readonly string[]): string {
      const path = join(directory, `bundle-${files++}.pem`);
      writeFileSync(path, pems.join('\n'));
      return path;
    },
    /** A proxy with a key, a workspace of its own and these flags; `env` is its whole environment. */
    async start(env: Readonly<Record<string, string>>, flags: readonly string[]) {
      const { log, lines } = recordingLogger();
      const { config } = parseConfig(
        [
          '--api-key=k',
          '--listen-address=127.0.0.1',
          '--port=0',
          `--unsafe-trust-roots=${join(directory, 'roots')}`,
          `--workspace=${join(directory, `workspace-${files++}`)}`,
          ...flags,
        ],
        {},
      );
      // None is opened ahead, so that connections can be counted.
      const proxy = await startProxy(config, { env, log, warmConnections: 0 });
      t.after(() => proxy.close());
      return { proxy, lines };
    },
  };
}

/** A chat completion in a stream; resolves with the status and the whole text of the answer. */
export async function streamChat(proxy: { readonly url: string }, content: string) {
  const response = await askChat(proxy, { content, stream: true });
  return { status: response.status, text: await response.text() };
}
