/**
 * examples/browser with the client library beside it, as any static server would deliver them, and a
 * deployment behind it.
 */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { build } from 'esbuild';
import type { Simulator } from '../../../simulator/simulator.ts';
import { opened } from '../remote/loopback.ts';
import type { Browser, Page } from './browser.ts';

const ROOT = join(import.meta.dirname, '../../..');
const PAGE = readFileSync(join(ROOT, 'examples/browser/index.html'), 'utf8');
const OUT = '/dist/privatemode-ai/portable';

/**
 * The portable modules by file name, as scripts/build-client.ts builds them into dist; `minify`: as an
 * application's bundler makes of them.
 */
export async function bundleClient({ minify = false } = {}): Promise<ReadonlyMap<string, Uint8Array>> {
  const { outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: { index: 'lib/client-library/index.ts', fetch: 'lib/client-library/fetch.ts' },
    outdir: join(ROOT, OUT),
    write: false,
    bundle: true,
    splitting: true,
    format: 'esm',
    target: 'es2024',
    minify,
    legalComments: 'none',
    charset: 'utf8',
    platform: 'browser',
    conditions: ['portable'],
    inject: [join(ROOT, 'lib/client-library/buffer.ts')],
    alias: { 'node:buffer': './lib/client-library/buffer.ts' },
    external: ['openai'],
    preserveSymlinks: true,
    logLevel: 'error',
  });
  return new Map(outputFiles.map(({ path, contents }) => [path.slice(join(ROOT, OUT).length + 1), contents]));
}

export interface ClientPages {
  /** Opens the page for this deployment, with key, endpoint and model filled in. */
  open(browser: Browser, simulator: Simulator, model?: string): Promise<Page>;
  close(): Promise<void>;
}

/** The options of the page for a deployment: everything comes from the simulator, its roots too. */
function optionsFor({ url, roots: { ark, ask, intel } }: Simulator): object {
  return {
    cdnBaseUrl: url,
    collateralUrls: { amd: url, intel: url },
    unsafeTrustRoots: { snp: { Genoa: { ark, ask } }, tdx: { root: intel } },
  };
}

/** Serves on 127.0.0.1, which browsers count as a secure context. */
export async function serveClientPages(): Promise<ClientPages> {
  const modules = await bundleClient();
  const deployments: Simulator[] = [];
  const server = createServer((request, response) => {
    request.resume();
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://page');
    const module = pathname.startsWith(`${OUT}/`) ? modules.get(pathname.slice(OUT.length + 1)) : undefined;
    const simulator = deployments[Number(searchParams.get('deployment'))];
    if (module !== undefined) {
      response.writeHead(200, { 'content-type': 'text/javascript; charset=utf-8' }).end(module);
    } else if (pathname === '/examples/browser/index.html' && simulator !== undefined) {
      const options = JSON.stringify(optionsFor(simulator));
      const page = PAGE.replace('id="options">{}<', () => `id="options">${options}<`);
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(page);
    } else response.writeHead(404).end();
  });
  const { port, close } = await opened(server);
  return {
    async open(browser, simulator, model = 'sim-echo') {
      const deployment = deployments.push(simulator) - 1;
      const page = await browser.open(
        `http://127.0.0.1:${port}/examples/browser/index.html?deployment=${deployment}`,
      );
      const fields = { key: 'key-of-a-page', endpoint: `https://localhost:${simulator.port}`, model };
      await page.evaluate(
        `for (const [id, value] of Object.entries(${JSON.stringify(fields)})) document.getElementById(id).value = value`,
      );
      return page;
    },
    close,
  };
}

/** Asks a question on the page and resolves when the answer is whole. Rejects after 19 s. */
export const askPage = (page: Page, prompt: string): Promise<void> =>
  page.evaluate(`new Promise((resolve, reject) => {
    const { dataset } = document.documentElement;
    const before = dataset.done;
    setTimeout(() => reject(new Error('the page is still busy')), 19_000);
    new MutationObserver(() => dataset.done !== before && resolve()).observe(document.documentElement, { attributes: true });
    document.getElementById('prompt').value = ${JSON.stringify(prompt)};
    document.getElementById('send').click();
  })`);

/** The text that elements show. */
export const shown = (page: Page, selector: string): Promise<string> =>
  page.evaluate(
    `[...document.querySelectorAll(${JSON.stringify(selector)})].map((each) => each.innerText).join('|')`,
  );
