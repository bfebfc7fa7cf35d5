/** The version of the product, as package.json has it (test/packaging/built/npm.check.ts). */
export const VERSION = '0.1.0';
