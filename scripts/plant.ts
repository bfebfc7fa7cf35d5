/**
 * Preloaded into the test of a fault, and into the programs that it starts: the file of the fault is loaded
 * with the fault in it. The tree stays as it is, so that faults can be planted at the same time.
 */
import { registerHooks } from 'node:module';
import { type Mutation, mutated } from './mutations.ts';

const fault = JSON.parse(process.env['MUTATION'] as string) as Mutation;
const place = new URL(`../${fault.file}`, import.meta.url).href;

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    return url === place ? { ...loaded, source: mutated(fault) } : loaded;
  },
});
