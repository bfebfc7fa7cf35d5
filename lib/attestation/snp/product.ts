/**
 * The AMD products that are accepted, and how to recognise each one (docs/protocol/attestation.md 6.2, 7,
 * 19.4). Another product needs a row here, its roots in roots/production.json, and the layout of its TCB and
 * PLATFORM_INFO in packed-fields.ts.
 *
 * Family and model of CPUID must match exactly: relatives such as Bergamo have no trust root here.
 * `steppings` may follow `-B` in the product name of a VCEK; `vcpuSignature` is CPUID(1).EAX in the VMSA of
 * an application processor, whatever the stepping.
 */
export const PRODUCTS = {
  Milan: { family: 0x19, model: 0x01, steppings: ['0', '1'], vcpuSignature: 0x00a00f11 },
  Genoa: { family: 0x19, model: 0x11, steppings: ['0', '1', '2'], vcpuSignature: 0x00a10f10 },
} as const;

export type Product = keyof typeof PRODUCTS;
export const PRODUCT_NAMES = Object.keys(PRODUCTS) as readonly Product[];

/** Known only so that a failed check can name it. */
const NOT_ACCEPTED = { Turin: { family: 0x1a, model: 0x02 } } as const;

export const isProduct = (name: string): name is Product => Object.hasOwn(PRODUCTS, name);

/** The product with these CPUID values; undefined for an unknown one. */
export function productOf(family: number, model: number): string | undefined {
  const known = Object.entries({ ...PRODUCTS, ...NOT_ACCEPTED });
  return known.find(([, row]) => row.family === family && row.model === model)?.[0];
}
