/** Faults in the client library. */
import type { Mutation } from './mutation.ts';

export const CLIENT_LIBRARY: readonly Mutation[] = [
  {
    defence: 'the options of a copy of a client: a fetch of its own has no pin',
    file: 'lib/client-library/privatemode-ai.ts',
    edits: [
      {
        find: '    sharedBy(this.#fetch, own);\n    return super.withOptions(sdk);',
        replace: '    return super.withOptions({ ...own, ...sdk });',
      },
    ],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: [
          'a client of the library shares options and verification with its copies, and refuses a copy with another key, host or manifest',
        ],
      },
    ],
  },
  {
    defence: 'the endpoint of the client library: it may be one without TLS',
    file: 'lib/client-library/options.ts',
    edits: [
      { find: "if (plain && url.protocol === 'https:') return url;", replace: 'if (plain) return url;' },
    ],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: ['a client of the library throws config_invalid when its options contain an http endpoint'],
      },
    ],
  },
  {
    defence: 'a redirect of the control path of the library: its key may go elsewhere',
    file: 'lib/client-library/control-call.ts',
    edits: [{ find: 'if (isRedirect(response)) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/client-library/control-call.test.ts',
        names: [
          'the control path of the library follows no redirect, which would carry the API key to another address',
        ],
      },
    ],
  },
  {
    defence: 'the mark on a success in the library: one that is not encrypted is shown',
    file: 'lib/client-library/respond.ts',
    edits: [
      {
        find: 'if (kind instanceof PrivatemodeError) {',
        replace: "if (kind instanceof PrivatemodeError && kind.code === 'upstream_redirect') {",
      },
    ],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          'a request through the client library fails with response_not_encrypted if a success is not encrypted',
        ],
      },
    ],
  },
  {
    defence: 'options of the library: one that nothing reads is ignored',
    file: 'lib/client-library/option-names.ts',
    edits: [
      {
        find: 'if (rule === undefined) throw unknownOption(name, what, rules);',
        replace: 'if (rule === undefined) continue;',
      },
    ],
    tests: [
      {
        file: 'test/client-library/option-names.test.ts',
        names: ['the client library refuses the unknown option "manifests"'],
      },
    ],
  },
  {
    defence: 'the pinned manifest of the library: the caller can change it afterwards',
    file: 'lib/client-library/options.ts',
    edits: [{ find: 'manifest.byteLength).slice()', replace: 'manifest.byteLength)' }],
    tests: [
      {
        file: 'test/client-library/verify.test.ts',
        names: [
          'verify() of the client library uses the pinned manifest as it was given, even if the caller changes the bytes afterwards',
        ],
      },
    ],
  },
  {
    defence: 'verify() of the library: it resolves while a denied secret is still being replaced',
    file: 'lib/client-library/fetch.ts',
    edits: [{ find: '(error ?? denied())', replace: 'error' }],
    tests: [
      {
        file: 'test/client-library/verify.test.ts',
        names: [
          'verify() of the client library rejects after the replacement of a denied secret took longer than verificationTimeout, while it still runs',
        ],
      },
    ],
  },
  {
    defence: 'verify() of the library: it resolves while a denied secret is still being replaced',
    file: 'lib/client-library/fetch.ts',
    edits: [{ find: '(error ?? denied())', replace: 'error' }],
    tests: [
      {
        file: 'test/client-library/verify.test.ts',
        names: [
          'verify() of the client library rejects after the replacement of a denied secret took longer than verificationTimeout, while it still runs',
        ],
      },
    ],
  },
  {
    defence: 'verify() of the library: it resolves with a verdict that rejects',
    file: 'lib/client-library/verification.ts',
    edits: [
      {
        find: "if (manifest === undefined || verdict.outcome !== 'accepted')",
        replace: 'if (manifest === undefined)',
      },
    ],
    tests: [
      {
        file: 'test/client-library/verify.test.ts',
        names: [
          'verify() of the client library rejects if another manifest is pinned, and no prompt is sent',
        ],
      },
    ],
  },
];
