/** A validator for the keywords of JSON Schema 2020-12 that the schemas of this repository use; it refuses any other. */

type Schema = Readonly<Record<string, unknown>>;

const ANNOTATIONS = new Set(['$schema', 'title', 'description', '$defs']);

const typeOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;

const isObject = (value: unknown): value is Record<string, unknown> => typeOf(value) === 'object';

/**
 * What is wrong with the value, each as `PATH: what`; empty if it is valid. Stricter than the standard in one point: a member that the
 * schema does not describe is wrong. Throws for a keyword that it does not know.
 */
export function schemaErrors(schema: Schema, value: unknown): string[] {
  const root = schema;

  function errorsAt(part: Schema, found: unknown, path: string): string[] {
    return Object.entries(part).flatMap(([keyword, rule]) => {
      if (ANNOTATIONS.has(keyword)) return [];
      const check = KEYWORDS[keyword];
      if (check === undefined) throw new Error(`the validator does not know the keyword ${keyword}`);
      return check(rule as never, found, path === '' ? '/' : path);
    });
  }

  const wrong = (path: string, holds: boolean, what: string): string[] => (holds ? [] : [`${path}: ${what}`]);

  const KEYWORDS: Readonly<Record<string, (rule: never, found: unknown, path: string) => string[]>> = {
    $ref(rule: string, found, path) {
      const name = /^#\/\$defs\/(\w+)$/.exec(rule)?.[1] ?? '';
      const target = (root['$defs'] as Record<string, Schema> | undefined)?.[name];
      if (target === undefined) throw new Error(`${rule} leads nowhere`);
      return errorsAt(target, found, path);
    },
    type: (rule: string | string[], found, path) =>
      wrong(path, [rule].flat().includes(typeOf(found)), `is no ${[rule].flat().join(' or ')}`),
    enum: (rule: unknown[], found, path) => wrong(path, rule.includes(found), 'is none of the values'),
    pattern: (rule: string, found, path) =>
      wrong(path, typeof found !== 'string' || new RegExp(rule, 'u').test(found), `does not match ${rule}`),
    oneOf(rule: Schema[], found, path) {
      const all = rule.map((each) => errorsAt(each, found, path));
      if (all.filter((errors) => errors.length === 0).length === 1) return [];
      return [`${path}: is not exactly one of the alternatives`, ...all.flat()];
    },
    required: (rule: string[], found, path) =>
      isObject(found)
        ? rule.flatMap((name) => wrong(path, Object.hasOwn(found, name), `has no ${name}`))
        : [],
    properties(rule: Record<string, Schema>, found, path) {
      if (!isObject(found)) return [];
      return Object.entries(found).flatMap(([name, member]) => {
        const described = Object.hasOwn(rule, name) ? rule[name] : undefined;
        const below = `${path === '/' ? '' : path}/${name}`;
        return described === undefined ? [`${below}: is not described`] : errorsAt(described, member, below);
      });
    },
    items: (rule: Schema, found, path) =>
      Array.isArray(found)
        ? found.flatMap((item, i) => errorsAt(rule, item, `${path === '/' ? '' : path}/${i}`))
        : [],
  };

  return errorsAt(schema, value, '');
}
