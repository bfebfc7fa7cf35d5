/**
 * Looks for Anthropic's web search in the tools of a request of /v1/messages. Anthropic's own service would
 * search; the model server behind this proxy has no such tool, and its error says only that a member is
 * missing. So the proxy refuses the request before anything is sent.
 */
import { PrivatemodeError } from '../errors.ts';
import type { JsonVisitor } from './json/json-index.ts';

const WEB_SEARCH = 'web_search_';
/** Only so many characters of a key or a type are read; no more are needed to decide. */
const LONGEST = 32;
/** The depth of a tool's members inside `tools`: one for the list, one for the tool. */
const TOOL = 2;

/**
 * Reads the types of tools while the index scans them, in fixed memory. Names do not count, since clients may
 * give such a name to a tool of their own. If `type` is repeated, every value counts. Call `check` after the
 * last byte: it throws hosted_tool_refused if a tool is a web search.
 */
export function createWebToolScan(): JsonVisitor & { check(): void } {
  let depth = 0;
  let text = '';
  let isType = false; // whether the next value is that of a `type`
  let found: string | undefined;
  const matters = (isKey: boolean): boolean => depth === TOOL && (isKey || isType);
  const take = (more: string): boolean => {
    text = (text + more).slice(0, LONGEST);
    return text.length < LONGEST;
  };

  return {
    member: 'tools',
    opened() {
      depth += 1;
      isType = false;
    },
    closed() {
      depth -= 1;
      isType = false;
    },
    stringBegan(isKey) {
      text = '';
      return matters(isKey);
    },
    stringBytes: (bytes, start, end) =>
      take(Buffer.from(bytes.subarray(start, Math.min(end, start + LONGEST))).toString('latin1')),
    escaped: (code) => take(String.fromCharCode(code)),
    stringEnded(isKey) {
      if (!matters(isKey)) return;
      if (!isKey && text.startsWith(WEB_SEARCH)) found ??= text;
      isType = isKey && text === 'type';
    },
    scalarBegan() {
      isType = false;
    },
    check() {
      if (found === undefined) return;
      const tool =
        /^\w+$/.test(found) && /^\d{8}$/.test(found.slice(WEB_SEARCH.length)) ? found : `${WEB_SEARCH}…`;
      throw new PrivatemodeError(
        'hosted_tool_refused',
        `the service has no tool ${tool}: it searches no web`,
      );
    },
  };
}
