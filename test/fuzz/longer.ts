/**
 * Preloaded (`node --import ./test/fuzz/longer.ts --test …`), it gives test files another fast-check: one
 * that runs their properties for FUZZ_MS each with a new seed, or again with a failure that was saved. So
 * whatever property a room has is fuzzed, and no property has to be written for it.
 */
import { registerHooks } from 'node:module';

const REPLACEMENT = new URL('./longer-fast-check.ts', import.meta.url).href;

registerHooks({
  resolve(specifier, context, next) {
    const wanted = specifier === 'fast-check' && context.parentURL !== REPLACEMENT;
    return wanted ? { url: REPLACEMENT, shortCircuit: true } : next(specifier, context);
  },
});
