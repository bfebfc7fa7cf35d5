/**
 * Text with the part between `<!-- NAME:begin -->` and `<!-- NAME:end -->` replaced, for pages that hold a
 * generated part. Throws where the markers are missing.
 */
export function replaceSection(text: string, name: string, body: string): string {
  const begin = `<!-- ${name}:begin -->\n`;
  const end = `<!-- ${name}:end -->`;
  const from = text.indexOf(begin);
  const to = text.indexOf(end, from);
  if (from < 0 || to < 0) throw new Error(`no section ${JSON.stringify(name)}`);
  return `${text.slice(0, from + begin.length)}\n${body.trim()}\n\n${text.slice(to)}`;
}
