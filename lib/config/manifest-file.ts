/**
 * Why the content of a file is surely no manifest, as the end of a sentence about the file; undefined where it may be one.
 * Without this, an error page that was saved in the place of a manifest would look like a deployment that runs under another.
 */
export function whyNoManifest(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString('utf8');
  return NO_MANIFEST.find(([holds]) => holds(text))?.[1];
}

const NO_MANIFEST: readonly (readonly [holds: (text: string) => boolean, what: string])[] = [
  [(text) => text.trim() === '', 'is empty: not a manifest'],
  [
    (text) => text.startsWith('\ufeff'),
    'begins with a byte order mark, which the manifest of the service does not have; save it byte for byte as it was sent',
  ],
  [
    (text) => /^\s*</.test(text),
    'is an HTML page, not a manifest; most likely an error page was saved in its place',
  ],
  [(text) => !isJsonObject(text), 'is not a JSON object: not a manifest'],
];

function isJsonObject(text: string): boolean {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed);
  } catch {
    return false;
  }
}
