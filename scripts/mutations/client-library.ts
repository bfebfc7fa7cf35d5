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
        file: 'test/client-library/client.test.ts',
        names: [
          'a client of the library shares options and verification with its copies, and refuses a copy with another key, host or manifest',
        ],
      },
    ],
  },
  {
    defence: 'the endpoint of the client library: it may be one without TLS',
    file: 'lib/client-library/read-options.ts',
    edits: [{ find: "protocol === 'https:' && ", replace: '' }],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: ['the options of the client library refuse a wrong apiEndpoint, and quote no value'],
      },
    ],
  },
  {
    defence: 'a redirect of the control path of the library: its key may go elsewhere',
    file: 'lib/client-library/control-call.ts',
    edits: [{ find: 'if (isRedirect(response))', replace: 'if (Date.now() < 0)' }],
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
    file: 'lib/client-library/read-options.ts',
    edits: [
      {
        find: 'else throw unknownOption(name, place, shape === OWN ? TOP : Object.keys(shape));',
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: ['the options of the client library refuse manifests, and name manifest'],
      },
    ],
  },
  {
    defence: 'the pinned manifest of the library: the caller can change it afterwards',
    file: 'lib/client-library/read-options.ts',
    edits: [{ find: 'manifest && Uint8Array.from(manifest)', replace: 'manifest' }],
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
    defence: 'verify() of the library: it resolves with a verdict that rejects',
    file: 'lib/client-library/verification.ts',
    edits: [
      {
        find: "if (found?.outcome === 'accepted' && error === undefined",
        replace: 'if (found !== undefined && error === undefined',
      },
    ],
    tests: [
      {
        file: 'test/client-library/verify.test.ts',
        names: [
          'verify() of the client library resolves only with an accepted verdict after which nothing was wrong, and with its manifest',
        ],
      },
    ],
  },
];
