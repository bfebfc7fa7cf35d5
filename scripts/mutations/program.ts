/** Faults in what the program takes from outside and tells to outside: settings, network, logs, the library, the command line. */
import type { Mutation } from './mutation.ts';

export const PROGRAM: readonly Mutation[] = [
  {
    defence: 'the experiment with the announced version: nobody is warned of it',
    file: 'lib/config/rules.ts',
    edits: [
      { find: "applies: ({ given }) => given.has('protocol-version'),", replace: 'applies: () => false,' },
    ],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: ['warnings about the configuration: another announced version is warned of'],
      },
    ],
  },
  {
    defence: 'a dump of requests: nobody is warned that prompts are written in plain text',
    file: 'lib/config/rules.ts',
    edits: [{ find: 'applies: ({ dumpRequests }) => dumpRequests,', replace: 'applies: () => false,' }],
    tests: [
      { file: 'test/config/rules.test.ts', names: ['warnings about the configuration: dumps is warned of'] },
    ],
  },
  {
    defence: 'the sums of receipts: a copied file counts twice',
    file: 'lib/transparency/usage.ts',
    edits: [{ find: ' || line.seq <= (lastSeq.get(instance) ?? -1)', replace: '' }],
    tests: [
      {
        file: 'test/commands/usage.test.ts',
        names: ['lines that usage leaves out counts no file twice that was copied under another name'],
      },
    ],
  },
  {
    defence: 'the listener of the metrics: it shows the status page',
    file: 'lib/observe/admin.ts',
    edits: [{ find: '    routes: METRICS_ROUTES,', replace: '    routes: ADMIN_ROUTES,' }],
    tests: [
      {
        file: 'test/observe/metrics-listener.test.ts',
        names: [
          'the listener of --metrics-address has the metrics of all requests and no status page, beside one that has both, with --workers 1',
        ],
      },
    ],
  },
  {
    defence: 'the listener of the metrics: it lacks what workers count',
    file: 'lib/workers/worker.ts',
    edits: [{ find: '(config.adminAddress ?? config.metricsAddress) &&', replace: 'config.adminAddress &&' }],
    tests: [
      {
        file: 'test/observe/metrics-listener.test.ts',
        names: [
          'the listener of --metrics-address is enough for metrics, without an admin listener, with --workers 2',
        ],
      },
    ],
  },
  {
    defence: 'a stop: load balancers that ask /readyz go on sending requests',
    file: 'lib/observe/health.ts',
    edits: [{ find: "if (state === 'ended') return ENDED;", replace: '' }],
    tests: [
      {
        file: 'test/server/draining.test.ts',
        names: [
          'draining at SIGTERM both listeners say so with --workers 1, requests are served, and a second signal closes the port',
        ],
      },
    ],
  },
  {
    defence: 'a stop: workers do not say that the proxy stops',
    file: 'lib/workers/primary.ts',
    edits: [{ find: "send(worker, { type: 'announce-stop' })", replace: 'void worker' }],
    tests: [
      {
        file: 'test/server/draining.test.ts',
        names: [
          'draining at SIGTERM both listeners say so with --workers 2, requests are served, and a second signal closes the port',
        ],
      },
    ],
  },
  {
    defence: 'a stop: clients keep connections that are about to end',
    file: 'lib/server/connections.ts',
    edits: [
      { find: "if (announced || ending.has(socket)) res.setHeader('connection', 'close');", replace: '' },
    ],
    tests: [
      {
        file: 'test/server/draining.test.ts',
        names: [
          'a listener that announces its end ends connections after their next response, and accepts new ones',
        ],
      },
    ],
  },
  {
    defence: 'a stop: the port closes before --shutdown-delay is over',
    file: 'lib/commands/serve.ts',
    edits: [{ find: 'if (delay > 0) {', replace: 'if (delay > 1e12) {' }],
    tests: [
      {
        file: 'test/server/draining.test.ts',
        names: ['draining the port stays open for --shutdown-delay, and then closes by itself'],
      },
    ],
  },
  {
    defence: 'a stop: a second signal during --shutdown-delay ends running responses',
    file: 'lib/commands/serve.ts',
    edits: [{ find: 'portClosing.signal.aborted', replace: 'stopping' }],
    tests: [
      {
        file: 'test/server/draining.test.ts',
        names: [
          'draining at SIGTERM both listeners say so with --workers 1, requests are served, and a second signal closes the port',
        ],
      },
    ],
  },
  {
    defence: 'a stop: behind a socket of systemd the delay only makes clients wait',
    file: 'lib/commands/serve.ts',
    edits: [
      { find: 'inheritedSocket(process.env) === undefined ? shutdownDelay : 0', replace: 'shutdownDelay' },
    ],
    tests: [{ file: 'test/server/draining.test.ts', names: ['draining a socket of systemd needs no delay'] }],
  },
  {
    defence: 'a socket file: others may connect before it has its mode',
    file: 'lib/server/listen.ts',
    edits: [{ find: 'process.umask(SOCKET_UMASK)', replace: 'process.umask(0o022)' }],
    tests: [
      {
        file: 'test/server/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file is the only one that can connect until the file has its mode, and keeps its umask',
        ],
      },
    ],
  },
  {
    defence: 'a socket file: others may connect before it has its mode, where workers open it',
    file: 'lib/workers/primary.ts',
    edits: [{ find: 'deps.startingUmask ?? ownUmask', replace: 'ownUmask' }],
    tests: [
      {
        file: 'test/server/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file lets in whom --listen-mode names, and nobody else before that, also where workers open the socket',
        ],
      },
    ],
  },
  {
    defence: 'a socket file: that of another proxy that starts at the same time is removed',
    file: 'lib/server/listen.ts',
    edits: [
      {
        find: 'if (ino === stale.ino && mtimeNs === stale.mtimeNs) return',
        replace: 'if (ino > 0n) return',
      },
    ],
    tests: [
      {
        file: 'test/server/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file leaves the socket alone of another one that has taken over from the killed one meanwhile',
        ],
      },
    ],
  },
  {
    defence: 'a socket file: that of another program is removed',
    file: 'lib/server/listen.ts',
    edits: [{ find: "if (reason !== 'ECONNREFUSED') throw", replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/server/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file does not start where another program answers, and leaves its socket alone',
        ],
      },
    ],
  },
  {
    defence: 'other trust roots: they may be used for the real service',
    file: 'lib/config/config.ts',
    edits: [
      {
        find: 'if (settings.unsafeTrustRoots !== undefined && isProductionHost(host)) {',
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: [
          'unsafe roots are refused for api.privatemode.ai',
          'unsafe roots are refused for api.privatemode.ai:8443',
          'unsafe roots are refused for privatemode.ai',
          'unsafe roots are refused for x.y.privatemode.ai',
        ],
      },
    ],
  },
  {
    defence: 'NODE_TLS_REJECT_UNAUTHORIZED: it switches off the checks of certificates',
    file: 'lib/config/config.ts',
    edits: [{ find: "if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {", replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: ['NODE_TLS_REJECT_UNAUTHORIZED of the environment cannot switch off certificate checks'],
      },
    ],
  },
  {
    defence: 'the environment: it may name other trust roots',
    file: 'lib/config/environment.ts',
    edits: [{ find: 'if (flag !== undefined)\n    throw', replace: 'if (Date.now() < 0)\n    throw' }],
    tests: [
      {
        file: 'test/config/environment.test.ts',
        names: [
          'settings in the environment: refused: PRIVATEMODE_PROXY_UNSAFE_TRUST_ROOTS is refused: give --unsafe-trust-roots on the command line only',
        ],
      },
    ],
  },
  {
    defence: 'the length of a salt: it may be guessed',
    file: 'lib/config/files.ts',
    edits: [{ find: 'if (bytes < MIN_SALT_BYTES) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/config/salt.test.ts',
        names: [
          'prompt cache salts: a literal with 31 bytes is refused, and not quoted',
          'prompt cache salts: a file that is too short after trimming is refused by its name',
        ],
      },
    ],
  },
  {
    defence: 'a redirect of the control path: a key may go elsewhere',
    file: 'lib/network/http-call.ts',
    edits: [
      {
        find: 'const redirect = statusCode >= 300 && statusCode < 400;',
        replace: 'const redirect = statusCode < 0;',
      },
    ],
    tests: [{ file: 'test/network/http-call.test.ts', names: ['http call follows no redirect'] }],
  },
  {
    defence:
      'a connection that is ready: what the service says unasked is taken for the answer to the next request',
    file: 'lib/network/warm-connections.ts',
    edits: [
      { find: "    socket.on('data', refuseUnasked).resume().unref();", replace: '    socket.unref();' },
    ],
    tests: [
      {
        file: 'test/network/warm-connections.test.ts',
        names: [
          'connections opened ahead that the service closes, or speaks on before it is asked, are replaced',
        ],
      },
    ],
  },
  {
    defence: 'a damaged file of collateral: it is taken for what the vendor signed',
    file: 'lib/network/collateral-store.ts',
    edits: [
      {
        find: 'if (file.url !== url || file.sha256 !== digestOf(file)) return',
        replace: 'if (file.url !== url) return',
      },
    ],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral: VCEK is fetched again when its file is damaged in any way',
          'collateral: TCB info is fetched again when its file is damaged in any way',
          'collateral: QE identity is fetched again when its file is damaged in any way',
        ],
      },
    ],
  },
  {
    defence: 'SSL_CERT_FILE: others than those in the file are trusted too',
    file: 'lib/network/trust-store.ts',
    edits: [
      {
        find: '  return certificates;',
        replace: "  return [...certificates, ...getCACertificates('bundled')];",
      },
    ],
    tests: [
      {
        file: 'test/network/trust-store.test.ts',
        names: ['trust store is exactly the file that SSL_CERT_FILE names'],
      },
    ],
  },
  {
    defence: 'the words of foreign errors: they may quote a prompt into the log',
    file: 'lib/observe/log.ts',
    edits: [{ find: "code.startsWith('ERR_') ? code :", replace: "code === '' ? code :" }],
    tests: [
      {
        file: 'test/observe/log.test.ts',
        names: ["what never gets into a log the words of Node's own check of an argument"],
      },
    ],
  },
  {
    defence: 'the quotes in a log: text of others may begin a line',
    file: 'lib/observe/log.ts',
    edits: [{ find: '&& !/[\\s"=]/.test(text) && isPrintable(text);', replace: '&& !/[ "=]/.test(text);' }],
    tests: [
      {
        file: 'test/observe/log.test.ts',
        names: [
          'text logs quote what could be mistaken for another field or another line',
          'text logs show no control characters that a remote could send to a terminal',
        ],
      },
    ],
  },
  {
    defence: 'the admission of the admin listener: any web page may read it',
    file: 'lib/observe/admin.ts',
    edits: [{ find: '      admit(req);', replace: '      void admit;' }],
    tests: [
      {
        file: 'test/observe/admin.test.ts',
        names: ['the listener of --admin-address serves nobody whom it must not admit, on any path'],
      },
    ],
  },
  {
    defence: 'the status page: text of others is part of it as HTML',
    file: 'lib/observe/status-page.ts',
    edits: [{ find: "escaped(text ?? '')", replace: "(text ?? '')" }],
    tests: [
      {
        file: 'test/observe/status-page.test.ts',
        names: ['the status page without JavaScript escapes every text of others'],
      },
    ],
  },
  {
    defence: 'a redirect of the control path of the library: its key may go elsewhere',
    file: 'lib/client/fetch-call.ts',
    edits: [{ find: 'if (isRedirect(response)) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/client/fetch-call.test.ts',
        names: ['the control path of the library follows no redirect, with which its key would go elsewhere'],
      },
    ],
  },
  {
    defence: 'the length of an answer on the control path of the library: there is no limit',
    file: 'lib/network/http-call.ts',
    edits: [{ find: 'if (size > maxBytes) {', replace: 'if (size < 0) {' }],
    tests: [
      {
        file: 'test/client/fetch-call.test.ts',
        names: [
          'the control path of the library takes an answer of exactly maxBytes, and refuses one byte more without reading on',
        ],
      },
    ],
  },
  {
    defence: 'the mark on a success in the library: one that is not encrypted is shown',
    file: 'lib/client/respond.ts',
    edits: [
      {
        find: 'if (kind instanceof PrivatemodeError) {',
        replace: "if (kind instanceof PrivatemodeError && kind.code === 'upstream_redirect') {",
      },
    ],
    tests: [
      {
        file: 'test/client/one-exchange.test.ts',
        names: [
          'a request through the library fails with response_not_encrypted where a success is not encrypted, and shows none of it',
        ],
      },
    ],
  },
  {
    defence: 'a file that is read slowly: its old content comes back',
    file: 'lib/watch-files.ts',
    edits: [
      {
        find: '  function take(turn: number, next: T): void {\n    if (turn < done) return;',
        replace: '  function take(turn: number, next: T): void {',
      },
    ],
    tests: [
      {
        file: 'test/watch-files.test.ts',
        names: ['a watched file: a read that takes long does not bring back what a later one found replaced'],
      },
    ],
  },
  {
    defence: 'a fault of the program: its words, which may quote anything, are printed',
    file: 'lib/cli.ts',
    edits: [
      {
        find: "(thrown.stack ?? '').split('\\n').filter((line) => /^\\s+at /.test(line))",
        replace: "[thrown.stack ?? '']",
      },
    ],
    tests: [
      {
        file: 'test/cli.test.ts',
        names: ['the command line: a fault of the program shows the place and not the words'],
      },
    ],
  },
  {
    defence: 'options of the library: one that nothing reads is ignored',
    file: 'lib/client/option-names.ts',
    edits: [
      {
        find: 'if (rule === undefined) throw unknownOption(name, what, rules);',
        replace: 'if (rule === undefined) continue;',
      },
    ],
    tests: [
      {
        file: 'test/client/option-names.test.ts',
        names: ['options of the client library refuse "manifests", which nothing reads'],
      },
    ],
  },
  {
    defence: 'verify() of the library: it resolves with a verdict that rejects',
    file: 'lib/client/verdict.ts',
    edits: [
      {
        find: "if (judged === undefined || verdict.outcome !== 'accepted') throw new",
        replace: 'if (judged === undefined) throw new',
      },
    ],
    tests: [
      {
        file: 'test/client/verify.test.ts',
        names: [
          'verify() of the client library rejects where another manifest is pinned, and no prompt is sent',
        ],
      },
    ],
  },
  {
    defence: 'run: settings files of Claude Code choose the provider',
    file: 'lib/commands/agents.ts',
    edits: [
      {
        find: "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST: '1'",
        replace: "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST: '0'",
      },
    ],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run claude asks the proxy, by variables and by settings that win over its files',
        ],
      },
    ],
  },
  {
    defence: 'run: opencode may use other providers too',
    file: 'lib/commands/agents.ts',
    edits: [{ find: 'enabled_providers: [name]', replace: 'enabled_providers: []' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run opencode asks the proxy, by a provider whose name stays the same and which is the only one',
        ],
      },
    ],
  },
  {
    defence: 'run: any text of the service goes into the configuration of an agent',
    file: 'lib/commands/run.ts',
    edits: [{ find: ' && PLAIN_NAME.test(only)', replace: '' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run asks for --model where the only one of the service is {env:GITHUB_TOKEN}',
          'privatemode-proxy run asks for --model where the only one of the service is __proto__',
        ],
      },
    ],
  },
  {
    defence: 'run: opencode replaces parts of its configuration',
    file: 'lib/commands/agents.ts',
    edits: [{ find: "string.replaceAll('{', '\\\\u007b')", replace: 'string' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run lets no agent replace a part of the model that the user chose, as started and as printed',
        ],
      },
    ],
  },
  {
    defence: 'run: white space in front of a setting hides it, which Codex does not see',
    file: 'lib/commands/agents.ts',
    edits: [{ find: `name.replace(/^[\\p{White_Space}"']+|[\\p{White_Space}"']+$/gu, '')`, replace: 'name' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run starts no codex with -c=model_provider =evil, by which prompts could bypass the proxy',
        ],
      },
    ],
  },
  {
    defence: 'run: a repository knows the key of the name of the provider',
    file: 'lib/commands/provider-name.ts',
    edits: [{ find: 'if (inside && ', replace: 'if (false && inside && ' }],
    tests: [
      {
        file: 'test/commands/run-provider-name.test.ts',
        names: [
          'the name of the provider that run gives to agents is new each time with a key in a directory of the project, and says why',
        ],
      },
    ],
  },
  {
    defence: 'run: the agent keeps the keys and the base URLs of the caller',
    file: 'lib/commands/run.ts',
    edits: [
      {
        find: 'filter(([variable]) => !REMOVED.test(variable))',
        replace: 'filter(([variable]) => variable !== "")',
      },
    ],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run withholds from the agent every key, and what chooses another way for prompts',
        ],
      },
    ],
  },
];
