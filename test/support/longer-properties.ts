/**
 * Preloaded by `npm run fuzz`: test files get this fast-check, which runs each property FUZZ_TIMES as often
 * (default: 20) and from a new seed. What fails is printed with its smallest example: it becomes one of the
 * `examples` of its property, with what mends it.
 */
import { registerHooks } from 'node:module';
import fc, { type IAsyncProperty, type IProperty, type Parameters } from 'fast-check';

export * from 'fast-check';

const TIMES = Number(process.env['FUZZ_TIMES'] ?? 20);

const longer = <T>({ seed: _, numRuns = 100, ...others }: Parameters<T>): Parameters<T> => ({
  ...others,
  numRuns: numRuns * TIMES,
});

export default {
  ...fc,
  assert: <T>(property: IProperty<T> | IAsyncProperty<T>, given: Parameters<T> = {}) =>
    fc.assert(property as IProperty<T>, longer(given)),
};

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'fast-check' && context.parentURL !== import.meta.url
      ? { url: import.meta.url, shortCircuit: true }
      : next(specifier, context),
});
