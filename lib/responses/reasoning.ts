/** `encrypted_content` of reasoning items: the text in a form that only this translation reads back. It keeps no secret of the client's. */

const MARK = 'privatemode.1.';

export const writeReasoning = (text: string): string =>
  MARK + Buffer.from(JSON.stringify(text)).toString('base64');

/** The text; undefined for what others wrote, which nobody here can read. */
export function readReasoning(content: string): string | undefined {
  if (!content.startsWith(MARK)) return undefined;
  try {
    const text: unknown = JSON.parse(Buffer.from(content.slice(MARK.length), 'base64').toString('utf8'));
    return typeof text === 'string' ? text : undefined;
  } catch {
    return undefined;
  }
}
