/** The product's own version; test/packaging.test.ts keeps it equal to package.json. */
export const VERSION = '0.1.0';
