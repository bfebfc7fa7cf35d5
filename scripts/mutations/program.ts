/**
 * Faults in what the program takes from outside and tells to outside: settings, network, logs, the library,
 * the command line.
 */
import type { Mutation } from './mutation.ts';

export const PROGRAM: readonly Mutation[] = [
  {
    defence: 'flags that npm kept: the proxy begins with other settings than those that were typed',
    file: 'lib/cli.ts',
    edits: [{ find: '    refuseFlagsOfNpm(loaded?.flags ?? FLAGS, env);\n', replace: '' }],
    tests: [
      {
        file: 'test/config/environment.test.ts',
        names: [
          'settings in the environment npm start without -- starts nothing and says: npm took --listen-address for a flag of its own: put -- in front, as in npm start -- --listen-address HOST|unix:PATH',
        ],
      },
    ],
  },
  {
    defence: 'flags of the systemd units: a proxy that is started in another way ignores all of them',
    file: 'lib/config/environment.ts',
    edits: [
      { find: ".every((word) => word === '' || passed.has(word))) return;", replace: '.length > 0) return;' },
    ],
    tests: [
      {
        file: 'test/config/environment.test.ts',
        names: [
          'settings in the environment a start refuses PRIVATEMODE_PROXY_FLAGS if none of its flags are on the command line, as outside of the systemd units',
        ],
      },
    ],
  },
  {
    defence: 'flags of the systemd units: verify ignores a manifest that is pinned among them',
    file: 'lib/commands/verify.ts',
    edits: [{ find: "if (request.mode === 'live') refuseFlagsNotPassed(argv, env);", replace: '' }],
    tests: [
      {
        file: 'test/config/environment.test.ts',
        names: [
          'settings in the environment verify refuses PRIVATEMODE_PROXY_FLAGS if it asks the service without them, as a manifest may be pinned there',
        ],
      },
    ],
  },
  {
    defence: 'a socket that systemd opened: its address is not judged, so an open one gets no warning',
    file: 'lib/proxy.ts',
    edits: [{ find: 'fd === undefined ? undefined : hostIn(url));', replace: 'undefined);' }],
    tests: [
      {
        file: 'test/config/inherited-socket.test.ts',
        names: [
          'a proxy on a socket that systemd opened warns that other machines can use it on 0.0.0.0, whatever --listen-address says (workers: 1)',
          'a proxy on a socket that systemd opened does not warn that other machines can use it on 127.0.0.1, whatever --listen-address says (workers: 2)',
        ],
      },
    ],
  },
  {
    defence: 'a port that systemd opened: a proxy that should have a socket file serves every user on it',
    file: 'lib/listener/listen.ts',
    edits: [{ find: '  if (socketFile !== undefined && port !== 0) refuse(NO_FILE);\n', replace: '' }],
    tests: [
      {
        file: 'test/config/inherited-socket.test.ts',
        names: [
          'a proxy on a socket that systemd opened does not start on a port if --listen-address names a socket file, which would keep other users out',
        ],
      },
    ],
  },
  {
    defence: 'the end of a proxy that cannot go on: its reason is not the last line',
    file: 'lib/commands/serve.ts',
    edits: [
      { find: "  if (fatal !== undefined && config.logFormat === 'text')", replace: '  if (fatal === null)' },
    ],
    tests: [
      {
        file: 'test/e2e/start-failures.test.ts',
        names: [
          'a running proxy that only its operator can repair ends with 1 if the service rejects its key, and says what to do',
        ],
      },
    ],
  },
  {
    defence: 'the edit of the demo: a prompt names a file outside of its directory',
    file: 'simulator/inference/models/person.ts',
    edits: [{ find: '(?<file>\\w[\\w-]*(?:\\.\\w[\\w-]*)*)', replace: '(?<file>\\S+?)' }],
    tests: [
      {
        file: 'test/simulator/inference-person.test.ts',
        names: [
          'the edit of the simulated model stays in the directory: a path, a hidden file or a parent directory is not taken as a file name',
        ],
      },
    ],
  },
  {
    defence: 'the edit of the demo: every simulator asks agents for it',
    file: 'simulator/inference/models/turn.ts',
    edits: [
      {
        find: 'edits === undefined ? undefined : editFor(text, request, edits)',
        replace: "editFor(text, request, edits ?? '/tmp')",
      },
    ],
    tests: [
      {
        file: 'test/simulator/inference-person.test.ts',
        names: [
          'the edit of the simulated model is made only if the demo allows it, the prompt asks for it and a tool can write files',
        ],
      },
    ],
  },
  {
    defence: 'the end of an agent in the demo: a line points at a proxy that is gone',
    file: 'lib/commands/run.ts',
    edits: [{ find: 'io.proxyEnds === true', replace: 'false' }],
    tests: [
      {
        file: 'test/e2e/demo.test.ts',
        names: [
          'npm run demo with --agent runs the agent behind the proxy in an empty directory, exits with its code, says that the proxy ends',
        ],
      },
    ],
  },
  {
    defence: 'the experiment with the announced version: nobody is warned of it',
    file: 'lib/config/rules.ts',
    edits: [
      { find: "applies: ({ given }) => given.has('protocol-version'),", replace: 'applies: () => false,' },
    ],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: ['warnings about the configuration tell of another --protocol-version'],
      },
    ],
  },
  {
    defence: 'a dump of requests: nobody is warned that prompts are written in plain text',
    file: 'lib/config/rules.ts',
    edits: [{ find: 'applies: ({ dumpRequests }) => dumpRequests,', replace: 'applies: () => false,' }],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: ['warnings about the configuration tell of --dump-requests'],
      },
    ],
  },
  {
    defence: 'the sums of receipts: a copied file counts twice',
    file: 'lib/receipts/usage.ts',
    edits: [{ find: ' || line.seq <= (lastSeq.get(instance) ?? -1)', replace: '' }],
    tests: [
      {
        file: 'test/commands/usage.test.ts',
        names: [
          'usage reading files of receipts counts the receipts of a file once if it was copied under another name',
        ],
      },
    ],
  },
  {
    defence: 'the sums of receipts: a gateway whose receipts are not there is left out in silence',
    file: 'lib/commands/usage.ts',
    edits: [{ find: 'directories.length === 1 || report.empty === undefined', replace: 'true' }],
    tests: [
      {
        file: 'test/commands/usage.test.ts',
        names: ['usage names a --dir without receipts, and exits with 10 if it is one of several'],
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
          'the listener of --metrics-address serves the metrics of all requests but no status page, beside an admin listener with one, with --workers 1',
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
          'the listener of --metrics-address serves the metrics of all requests without an admin listener, with --workers 2',
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
        file: 'test/listener/draining.test.ts',
        names: [
          'a proxy after SIGTERM answers /readyz with 503 on both listeners, serves requests, and closes the port at a second signal (--workers 1)',
        ],
      },
    ],
  },
  {
    defence: 'the count of rejected evidence: the first rejection is not seen',
    file: 'lib/observe/metrics.ts',
    edits: [{ find: "['accepted', 'failed', 'unavailable']", replace: "['accepted', 'unavailable']" }],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics that alerts compare over time are 0 before the first error, for rejections of the service, failures to decrypt and verifications',
        ],
      },
    ],
  },
  {
    defence: 'the counts of refused requests: a scanner makes the page forget those before it',
    file: 'lib/observe/recent-traffic.ts',
    edits: [{ find: 'if (rest.length === 0) return newest;', replace: 'if (Date.now() > 0) return newest;' }],
    tests: [
      {
        file: 'test/observe/recent-traffic.test.ts',
        names: [
          'the traffic log counts refused requests by method, path and code, the last 20 such kinds alone and all others together',
        ],
      },
    ],
  },
  {
    defence: 'the metrics of workers that have ended: totals go back, and alerts count old events again',
    file: 'lib/observe/metrics.ts',
    edits: [{ find: '...(await options.others()), ended];', replace: '...(await options.others())];' }],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics of a worker that has ended stay in the totals, also those of the worker after it, and its gauges are gone',
        ],
      },
    ],
  },
  {
    defence: 'the start time with workers: no alert notices a program that restarts between two scrapes',
    file: 'lib/observe/metrics.ts',
    edits: [{ find: "$/, 'first'],", replace: "$/, 'omit']," }],
    tests: [
      {
        file: 'test/observe/metrics.test.ts',
        names: [
          'metrics of the process have with workers the start time of the primary, which changes with each restart of the program',
        ],
      },
    ],
  },
  {
    defence: 'a worker that cannot be forked: nothing replaces it, and the proxy does not stop',
    file: 'lib/workers/forked-worker.ts',
    edits: [
      {
        find: '    if (worker.process.pid !== undefined || isOver) return;',
        replace: '    return;',
      },
    ],
    tests: [
      {
        file: 'test/workers/fork-failures.test.ts',
        names: [
          'a worker that cannot be forked is logged and forked again until that succeeds, with the umask of the proxy restored',
          'a worker that cannot be forked does not keep the proxy from stopping',
        ],
      },
    ],
  },
  {
    defence: 'a worker that cannot start: its exit code says that all is well',
    file: 'lib/workers/worker.ts',
    edits: [{ find: '    process.exitCode = code;', replace: '    void code;' }],
    tests: [
      {
        file: 'test/e2e/workers.test.ts',
        names: [
          'a proxy with --workers 2 whose workers end and cannot start again logs why, has the condition workers_missing and is not ready, until they can',
        ],
      },
    ],
  },
  {
    defence: 'a worker that cannot start: it neither says so nor ends',
    file: 'lib/workers/worker.ts',
    edits: [
      {
        find: "    send({ type: 'failed', version: VERSION, error",
        replace: "    throw thrown;\n    send({ type: 'failed', version: VERSION, error",
      },
    ],
    tests: [
      {
        file: 'test/workers/worker.test.ts',
        names: ['a worker that fails at any step of its start says why, and ends'],
      },
    ],
  },
  {
    defence: 'a worker that replaces another: it reads the files of the settings again',
    file: 'lib/workers/worker.ts',
    edits: [{ find: ', config.connectTimeout, start.authorities)', replace: ', config.connectTimeout)' }],
    tests: [
      {
        file: 'test/e2e/workers.test.ts',
        names: [
          'a proxy with --workers 2 whose files cannot be used any more replaces workers that end, and they use the settings and the key from its start',
        ],
      },
    ],
  },
  {
    defence: 'an upgrade on disk: a worker of the new version takes the messages of the old one for its own',
    file: 'lib/workers/worker.ts',
    edits: [{ find: '    if (start.version !== VERSION) throw', replace: '    if (false) throw' }],
    tests: [
      {
        file: 'test/workers/worker.test.ts',
        names: [
          'a worker of another version than its primary reads no more of its first message than the version, and says to restart',
        ],
      },
    ],
  },
  {
    defence:
      'an upgrade on disk: the proxy stays without any worker, so no supervisor starts the new version',
    file: 'lib/workers/primary.ts',
    edits: [{ find: 'if (version !== VERSION && hasStarted', replace: 'if (hasStarted && !hasStarted' }],
    tests: [
      {
        file: 'test/workers/primary.test.ts',
        names: [
          'the primary whose program was replaced on disk serves on while a worker listens, and ends when none does',
        ],
      },
    ],
  },
  {
    defence: 'the last messages of a worker: those that wait for room in its channel are lost when it leaves',
    file: 'lib/workers/worker.ts',
    edits: [{ find: "=> send({ type: 'done' }, written)", replace: "=> written(send({ type: 'done' }))" }],
    tests: [
      {
        file: 'test/workers/worker.test.ts',
        names: ['a worker that drains keeps its channel until its last message is on its way'],
      },
    ],
  },
  {
    defence: 'the last messages of a worker: nobody notes that they are missing if it ends with 0',
    file: 'lib/workers/forked-worker.ts',
    edits: [{ find: 'let isDone = false;', replace: 'let isDone = true;' }],
    tests: [
      {
        file: 'test/workers/primary.test.ts',
        names: [
          'the primary notes a gap for a worker that ends with 0 without having sent everything, and waits for the last receipts of the others',
        ],
      },
    ],
  },
  {
    defence: 'the last messages of a worker: the file of the receipts is closed before they are read',
    file: 'lib/workers/primary.ts',
    edits: [{ find: 'await Promise.all(unread);', replace: '' }],
    tests: [
      {
        file: 'test/workers/primary.test.ts',
        names: [
          'the primary notes a gap for a worker that ends with 0 without having sent everything, and waits for the last receipts of the others',
        ],
      },
    ],
  },
  {
    defence: 'workers that do not listen: the listener for operators says that the proxy is ready',
    file: 'lib/open-admin.ts',
    edits: [{ find: 'isServed: (server()?.listening() ?? 0) > 0', replace: 'isServed: true' }],
    tests: [
      {
        file: 'test/e2e/workers.test.ts',
        names: [
          'a proxy with --workers 2 whose workers end and cannot start again logs why, has the condition workers_missing and is not ready, until they can',
        ],
      },
    ],
  },
  {
    defence: 'workers that do not listen: while others do, nobody is told',
    file: 'lib/workers/missing-workers.ts',
    edits: [{ find: '      isMissing = true;\n      update();', replace: '      update();' }],
    tests: [
      {
        file: 'test/workers/primary.test.ts',
        names: [
          'the primary reports missing workers 10 s after one stopped listening, at once if none listens, until all listen',
        ],
      },
    ],
  },
  {
    defence: 'a socket of systemd: the proxy goes on without it when its last worker has ended',
    file: 'lib/workers/primary.ts',
    edits: [
      { find: 'const isLast = fd !== undefined && worker', replace: 'const isLast = fd === null && worker' },
    ],
    tests: [
      {
        file: 'test/e2e/workers.test.ts',
        names: [
          'a proxy with --workers 2 on a socket of systemd ends with 1 when its last worker has ended, and serves again when systemd restarts it',
        ],
      },
    ],
  },
  {
    defence: 'a stop: workers do not say that the proxy stops',
    file: 'lib/workers/primary.ts',
    edits: [{ find: "worker.tell({ type: 'announce-stop' })", replace: 'void worker' }],
    tests: [
      {
        file: 'test/listener/draining.test.ts',
        names: [
          'a proxy after SIGTERM answers /readyz with 503 on both listeners, serves requests, and closes the port at a second signal (--workers 2)',
        ],
      },
    ],
  },
  {
    defence: 'a stop: clients keep connections that are about to end',
    file: 'lib/listener/connections.ts',
    edits: [
      { find: "if (announced || ending.has(socket)) res.setHeader('connection', 'close');", replace: '' },
    ],
    tests: [
      {
        file: 'test/listener/draining.test.ts',
        names: [
          'a listener that announces its end ends each connection after its next response, and still accepts new connections',
        ],
      },
    ],
  },
  {
    defence: 'a stop: a connection whose TLS handshake ends later may idle until the grace is over',
    file: 'lib/listener/connections.ts',
    edits: [{ find: '    if (draining) endWithoutRequest(socket);\n', replace: '' }],
    tests: [
      {
        file: 'test/gateway/shutdown.test.ts',
        names: [
          'a listener that is drained during a TLS handshake waits about a second for the first request after the handshake',
        ],
      },
    ],
  },
  {
    defence: 'a response that breaks off over HTTP/1.0 and TLS: it ends like a whole one',
    file: 'lib/listener/connections.ts',
    edits: [{ find: 'else raw.resetAndDestroy();', replace: 'else socket.destroy();' }],
    tests: [
      {
        file: 'test/listener/tls.test.ts',
        names: [
          'TLS ends a response that breaks off with a reset over HTTP/1.0, where a close would look like its end',
        ],
      },
    ],
  },
  {
    defence: 'a reset under TLS that looks like an orderly end: its response never ends',
    file: 'lib/listener/connections.ts',
    edits: [{ find: "    socket.once('end', () => endIfStuck(socket));\n", replace: '' }],
    tests: [
      {
        file: 'test/listener/tls.test.ts',
        names: [
          'TLS ends a connection that its client resets just after a request, which Node takes for an orderly end',
        ],
      },
    ],
  },
  {
    defence: 'the connection of a CONNECT: its reset ends the process',
    file: 'lib/listener/connections.ts',
    edits: [{ find: "    socket.on('error', ignore);\n", replace: '' }],
    tests: [
      {
        file: 'test/gateway/hostile-framing.test.ts',
        names: [
          'a CONNECT, as programs send it that have the proxy in HTTPS_PROXY does not end the proxy if its connection is reset',
        ],
      },
    ],
  },
  {
    defence:
      'client certificates on an inherited socket file: each connection that shows one ends without a word',
    file: 'lib/listener/listen.ts',
    edits: [{ find: 'if (clientCertificates !== undefined && port === 0) ', replace: 'if (port < 0) ' }],
    tests: [
      {
        file: 'test/listener/tls.test.ts',
        names: [
          'TLS takes no client certificates on a socket file, where it could not tell the connections apart',
        ],
      },
    ],
  },
  {
    defence: 'a stop: a TLS handshake that never ends holds it up',
    file: 'lib/listener/connections.ts',
    edits: [{ find: '      if (tls) clock.after(firstRequest, endHandshakes);\n', replace: '' }],
    tests: [
      {
        file: 'test/gateway/shutdown.test.ts',
        names: [
          'a listener that is drained during a TLS handshake waits about a second for the end of the handshake',
        ],
      },
    ],
  },
  {
    defence: 'a stop: systemd kills a proxy whose --shutdown-grace is longer than TimeoutStopSec',
    file: 'lib/commands/serve.ts',
    edits: [{ find: 'manager.stopping(delay + config.shutdownGrace)', replace: 'manager.stopping(delay)' }],
    tests: [
      {
        file: 'test/listener/draining.test.ts',
        names: [
          'a proxy after SIGTERM asks systemd for the time of --shutdown-delay and --shutdown-grace, and a margin',
        ],
      },
    ],
  },
  {
    defence: 'a stop: a disk that does not answer holds the process',
    file: 'lib/commands/serve.ts',
    edits: [
      { find: "() => endNow('SIGKILL', log, tooLate)", replace: '() => {}' },
      { find: 'process.kill(process.pid, signal);', replace: '' },
    ],
    tests: [
      {
        file: 'test/gateway/shutdown.test.ts',
        names: [
          'shutdown of the program ends soon after a second SIGTERM also if a disk does not answer',
          'shutdown of the program kills itself a while after --shutdown-grace if a disk does not answer, with receipts',
        ],
      },
    ],
  },
  {
    defence: 'a stop: a second signal ends the process without the ends of its responses',
    file: 'lib/commands/serve.ts',
    edits: [{ find: 'proxy.endGrace();', replace: "endNow(signal, log, '');" }],
    tests: [
      {
        file: 'test/gateway/shutdown.test.ts',
        names: [
          'shutdown of the program ends a stream with shutting_down after a second SIGTERM, with its receipt and its line in the log (--workers 1)',
        ],
      },
    ],
  },
  {
    defence: 'a stop: process.exit() waits for a disk that does not answer',
    file: 'lib/cli.ts',
    edits: [{ find: ' && stderr.writableLength > 0', replace: '' }],
    tests: [
      {
        file: 'test/gateway/shutdown.test.ts',
        names: [
          'shutdown of the program kills itself a while after --shutdown-grace if a disk does not answer, without receipts',
        ],
      },
    ],
  },
  {
    defence: 'requests without a key: each stays in memory',
    file: 'lib/session/waiting.ts',
    edits: [
      {
        find: '    if (offeredKey === undefined) {\n',
        replace: '    if (offeredKey === undefined) {\n      requests.change();\n',
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: ['a session without a key keeps nothing of requests that bring no key'],
      },
    ],
  },
  {
    defence: 'a session that renews on demand: an error of an hour ago refuses every request',
    file: 'lib/session/waiting.ts',
    edits: [{ find: 'return isFresh || stays ? permanent : undefined;', replace: 'return permanent;' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session that renews on demand begins a renewal for a request a minute after an error that waiting does not cure',
          'a session that renews on demand serves a request after the key was refused, where the renewal ends with each request',
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
        file: 'test/listener/draining.test.ts',
        names: [
          'a proxy after SIGTERM keeps the port open for --shutdown-delay, and then closes it by itself',
        ],
      },
    ],
  },
  {
    defence: 'a stop: a second signal during --shutdown-delay ends running responses',
    file: 'lib/commands/serve.ts',
    edits: [{ find: 'portClosing.signal.aborted', replace: 'stopping' }],
    tests: [
      {
        file: 'test/listener/draining.test.ts',
        names: [
          'a proxy after SIGTERM answers /readyz with 503 on both listeners, serves requests, and closes the port at a second signal (--workers 1)',
        ],
      },
    ],
  },
  {
    defence: 'status: the answer of another program ends it with a stack trace',
    file: 'lib/commands/status.ts',
    edits: [{ find: 'renderStatus(facts, { colours: false }); //', replace: '//' }],
    tests: [
      {
        file: 'test/commands/status.test.ts',
        names: ['the command status says what to do if --admin-address leads to a proxy of another version'],
      },
    ],
  },
  {
    defence: 'a terminal that closes: the proxy goes on, and nobody sees it',
    file: 'lib/commands/serve.ts',
    edits: [{ find: 'if (!onTerminal || isatty(STDERR)) proxy', replace: 'if (Date.now() > 0) proxy' }],
    tests: [
      {
        file: 'test/listener/draining.test.ts',
        names: [
          'a proxy on a terminal reads its files again on SIGHUP, and ends if the terminal has closed (alone)',
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
    tests: [
      {
        file: 'test/listener/draining.test.ts',
        names: ['a proxy after SIGTERM does not wait for --shutdown-delay if systemd holds the socket'],
      },
    ],
  },
  {
    defence: 'a socket file: others may connect before it has its mode',
    file: 'lib/listener/listen.ts',
    edits: [{ find: 'process.umask(0o777 & ~file.mode)', replace: 'process.umask(0o022)' }],
    tests: [
      {
        file: 'test/listener/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file creates the file with its mode, whatever the umask, and changes no mode through a link in its place',
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
        file: 'test/listener/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file creates the file with the mode of --listen-mode, and never with a wider one, also if workers open it',
        ],
      },
    ],
  },
  {
    defence: 'a socket file: that of another proxy that starts at the same time is removed',
    file: 'lib/listener/listen.ts',
    edits: [
      {
        find: 'if (ino === stale.ino && mtimeNs === stale.mtimeNs) return',
        replace: 'if (ino > 0n) return',
      },
    ],
    tests: [
      {
        file: 'test/listener/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file does not remove the socket of another proxy that has replaced the stale one meanwhile',
        ],
      },
    ],
  },
  {
    defence: 'a socket file: that of another program is removed',
    file: 'lib/listener/listen.ts',
    edits: [{ find: "if (reason !== 'ECONNREFUSED') throw", replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/listener/socket-file.test.ts',
        names: [
          'a proxy that listens on a socket file does not start if another program answers on the path, and leaves that socket alone',
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
    defence: 'a certificate without its key: the proxy starts without TLS',
    file: 'lib/config/rules.ts',
    edits: [
      {
        find: "applies: ({ given }) => given.has('tls-cert-path') !== given.has('tls-key-path'),",
        replace: 'applies: () => false,',
      },
    ],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: [
          'flags that contradict each other are refused by an error that names both: a certificate without its key',
          'flags that contradict each other are refused by an error that names both: a key without its certificate',
        ],
      },
    ],
  },
  {
    defence: 'a CA of clients without a list of clients: everybody may use the proxy, without a word',
    file: 'lib/config/rules.ts',
    edits: [
      {
        find: "applies: ({ given }) => given.has('tls-client-ca') && !given.has('clients'),",
        replace: 'applies: () => false,',
      },
    ],
    tests: [
      {
        file: 'test/config/rules.test.ts',
        names: [
          'flags that contradict each other are refused by an error that names both: a CA of clients without clients',
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
    defence: 'a key file of two words: the second one is sent as a part of the key',
    file: 'lib/config/api-key.ts',
    edits: [{ find: "if (key.includes(' ')) throw", replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/config/api-key.test.ts',
        names: [
          'the API key is not taken from a file that is of two words, and the error names the file and does not quote it',
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
          'settings in the environment the proxy refuses to start: PRIVATEMODE_PROXY_UNSAFE_TRUST_ROOTS is refused: give --unsafe-trust-roots on the command line only',
        ],
      },
    ],
  },
  {
    defence: 'a mistyped setting in the environment: a pin of the manifest is left out without a word',
    file: 'lib/config/environment.ts',
    edits: [{ find: 'if (meant !== undefined)', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/config/environment.test.ts',
        names: [
          'settings in the environment the proxy refuses to start: unknown setting in the environment: PRIVATEMODE_PROXY_MANFEST_PTH. Did you mean PRIVATEMODE_PROXY_MANIFEST_PATH?',
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
          'prompt cache salts a literal with 31 bytes is refused, and the error does not quote it',
          'prompt cache salts a file that is too short after trimming is refused, and the error names the file',
        ],
      },
    ],
  },
  {
    defence: 'a salt whose bytes Node has replaced: two salts become one',
    file: 'lib/config/files.ts',
    edits: [{ find: "!text.includes('\\ufffd')", replace: 'true' }],
    tests: [
      {
        file: 'test/config/salt.test.ts',
        names: [
          'prompt cache salts a literal with what Node made of bytes that are no UTF-8 is refused, and the error does not quote it',
        ],
      },
    ],
  },
  {
    defence: 'a redirect of the control path: a key may go elsewhere',
    file: 'lib/network/control-call.ts',
    edits: [
      {
        find: 'const redirect = statusCode >= 300 && statusCode < 400;',
        replace: 'const redirect = statusCode < 0;',
      },
    ],
    tests: [{ file: 'test/network/control-call.test.ts', names: ['http call follows no redirect'] }],
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
          'connections opened ahead are replaced if the service closes them, or sends bytes before a request',
        ],
      },
    ],
  },
  {
    defence: 'a new connection to the service: it resumes a TLS session, and its certificate is not checked',
    file: 'lib/network/outbound.ts',
    edits: [{ find: 'secureContext, maxCachedSessions: 0 }', replace: 'secureContext }' }],
    tests: [
      {
        file: 'test/network/outbound.test.ts',
        names: [
          'connections to a service are kept alive on the data path, and new ones resume no TLS session, directly and through a proxy',
        ],
      },
    ],
  },
  {
    defence: 'a stop: connections that are being opened keep the process alive',
    file: 'lib/network/outbound.ts',
    edits: [{ find: '      closed.abort();\n', replace: '' }],
    tests: [
      {
        file: 'test/network/outbound.test.ts',
        names: [
          'connections that are being opened end when all connections are closed: control path, in the TLS handshake',
          'connections that are being opened end when all connections are closed: control path, at the HTTP proxy',
          'connections that are being opened end when all connections are closed: data path, at the HTTP proxy',
        ],
      },
    ],
  },
  {
    defence: 'a sleep of the machine: the next request waits on a connection whose other end is gone',
    file: 'lib/network/upstream.ts',
    edits: [{ find: '      options.connections?.dropOutlived();\n', replace: '' }],
    tests: [
      {
        file: 'test/network/upstream.test.ts',
        names: [
          'an attempt after a sleep of the machine goes out on a new connection, not on one that was kept',
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
          'collateral: VCEK is not taken from a file that is damaged in any way, and is fetched again',
          'collateral: TCB info is not taken from a file that is damaged in any way, and is fetched again',
          'collateral: QE identity is not taken from a file that is damaged in any way, and is fetched again',
          'collateral: AMD CRL is not taken from a file that is damaged in any way, and is fetched again',
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
    defence: 'a reader of the log that does not read: the lines that wait fill the memory',
    file: 'lib/observe/log.ts',
    edits: [{ find: '(dropped > 0 ? 0 : MOST_WAITING)', replace: 'Number.POSITIVE_INFINITY' }],
    tests: [
      {
        file: 'test/observe/log.test.ts',
        names: [
          'a log that nobody reads keeps at most 16 MiB waiting, and says how many lines it dropped once it is read again',
        ],
      },
    ],
  },
  {
    defence: 'lines of the log that were dropped: nothing says so',
    file: 'lib/observe/log.ts',
    edits: [{ find: 'if (lines > 0) report(lines);', replace: 'if (lines < 0) report(lines);' }],
    tests: [
      {
        file: 'test/observe/log.test.ts',
        names: [
          'a log that nobody reads keeps at most 16 MiB waiting, and says how many lines it dropped once it is read again',
        ],
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
        names: ["a log line tells of Node's own check of an argument without its message"],
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
        names: [
          'the listener of --admin-address refuses on every path a request that is not admitted, with the error code of the refusal',
        ],
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
    defence: 'the length of an answer on the control path of the library: there is no limit',
    file: 'lib/network/control-call.ts',
    edits: [{ find: 'if (size > maxBytes) {', replace: 'if (size < 0) {' }],
    tests: [
      {
        file: 'test/client-library/control-call.test.ts',
        names: [
          'the control path of the library accepts a response of exactly maxBytes, and refuses one byte more without reading on',
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
    defence: 'a file that is read slowly: other reads of it begin meanwhile, and its old content comes back',
    file: 'lib/watch-files.ts',
    edits: [
      { find: 'if (reading === undefined) return begin();', replace: 'if (begin) return begin();' },
      { find: 'if (reading === undefined) void begin();', replace: 'void begin();' },
    ],
    tests: [
      {
        file: 'test/watch-files.test.ts',
        names: [
          'a watched file: a reload during a read takes effect after it, once for several',
          'a watched file: a read that does not return is a failure after 10 s, and no other read begins',
        ],
      },
    ],
  },
  {
    defence: 'a file whose disk hangs: nobody is told',
    file: 'lib/watch-files.ts',
    edits: [{ find: "() => keep(new PrivatemodeError('config_invalid', late))", replace: '() => {}' }],
    tests: [
      {
        file: 'test/watch-files.test.ts',
        names: [
          'a watched file: a read that does not return is a failure after 10 s, and no other read begins',
        ],
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
        names: ['the command line an internal error shows its place in the code and not its message'],
      },
    ],
  },
  {
    defence: "a body that fails after its request was aborted: the application's process ends",
    file: 'lib/http-rules/until-aborted.ts',
    edits: [{ find: 'if (signal.aborted) leave();', replace: 'if (signal.aborted) throw signal.reason;' }],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          'a request through the client library leaves no unhandled rejection if it was aborted before it begins, and its body failed',
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
    edits: [{ find: '(error ?? suspended())', replace: 'error' }],
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
    defence: 'a denied secret: a request waits for its replacement for longer than its caller has',
    file: 'lib/session/waiting.ts',
    edits: [{ find: 'within(timeoutMs, undefined', replace: 'within(FORCED_TIMEOUT, undefined' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'the renewal that a rejected secret forces fails the request with not_ready after the time that its caller has without an end',
        ],
      },
    ],
  },
  {
    defence: 'the upload of a stream that reuses its memory, in the library: other bytes are sent',
    file: 'lib/client-library/forward.ts',
    edits: [{ find: 'given.isText ? chunk : new Uint8Array(chunk)', replace: 'chunk' }],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          'a request through the client library is sent as its body was when the library read it, if the application then changes the memory',
        ],
      },
    ],
  },
  {
    defence: 'the option fetch of the library: it is called as a method, which a browser refuses',
    file: 'lib/client-library/send.ts',
    edits: [{ find: 'await fetch(new URL(', replace: 'await config.fetch(new URL(' }],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          'a request through the client library is sent by a fetch that must not be called as a method, such as window.fetch',
        ],
      },
    ],
  },
  {
    defence: 'a wait that the runtime of the library ended: its error names an option that changes nothing',
    file: 'lib/client-library/control-call.ts',
    edits: [
      {
        find: 'if (known === undefined) return undefined;',
        replace: 'if (known !== null) return undefined;',
      },
    ],
    tests: [
      {
        file: 'test/client-library/one-exchange.test.ts',
        names: [
          "a request through the client library says that the runtime stopped waiting if it ends a wait sooner than the library's options",
        ],
      },
    ],
  },
  {
    defence: 'a closed client of the library: its signal keeps it in memory',
    file: 'lib/client-library/fetch.ts',
    edits: [{ find: "config.signal?.removeEventListener('abort', close);", replace: '' }],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: [
          'a client of the library leaves no listener on its signal once close() was called, so that the signal does not keep it alive',
        ],
      },
    ],
  },
  {
    defence: 'a client of the library inside another one: no request of it can arrive',
    file: 'lib/client-library/fetch.ts',
    edits: [{ find: 'if (isOurs(config.fetch))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/client-library/options.test.ts',
        names: [
          'a client of the library shares the session of a fetch that createPrivatemodeFetch made, and refuses other options beside it',
        ],
      },
    ],
  },
  {
    defence: 'verify() of the library: it resolves with a verdict that rejects',
    file: 'lib/client-library/verification.ts',
    edits: [
      {
        find: "if (found?.manifest === undefined || verdict.outcome !== 'accepted')",
        replace: 'if (found?.manifest === undefined)',
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
  {
    defence: 'run: settings files of Claude Code choose the provider',
    file: 'lib/commands/agents/claude.ts',
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
          'privatemode-proxy run claude asks the proxy, by variables and by settings that override its files',
        ],
      },
    ],
  },
  {
    defence: 'run: opencode may use other providers too',
    file: 'lib/commands/agents/opencode.ts',
    edits: [{ find: 'enabled_providers: [name]', replace: 'enabled_providers: []' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run opencode asks the proxy through its only provider, whose name is the same in the next run',
        ],
      },
    ],
  },
  {
    defence: 'run: any text of the service goes into the configuration of an agent',
    file: 'lib/commands/run-models.ts',
    edits: [{ find: ' && isPlainName(only)', replace: '' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run asks for --model if the only model of the service is named {env:GITHUB_TOKEN}',
          'privatemode-proxy run asks for --model if the only model of the service is named __proto__',
        ],
      },
    ],
  },
  {
    defence: 'run: any value of the service becomes the context window of an agent',
    file: 'lib/commands/run-models.ts',
    edits: [{ find: 'return Number.isInteger(window) &&', replace: 'return window !== undefined ||' }],
    tests: [
      {
        file: 'test/commands/run-limits.test.ts',
        names: [
          'privatemode-proxy run gives claude no limits if the list says "{env:HOME}", and warns of that once',
          'privatemode-proxy run gives opencode no limits if the list says 10000001, and warns of that once',
        ],
      },
    ],
  },
  {
    defence: 'run: a file that knows the name of the provider adds models to it',
    file: 'lib/commands/agents/opencode.ts',
    edits: [{ find: 'whitelist: models.map((each) => each.name),', replace: '' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run opencode gets a provider with a list of allowed models, each with the URL of the proxy',
        ],
      },
    ],
  },
  {
    defence: 'run: Claude Code asks Anthropic about the hosts of pages',
    file: 'lib/commands/agents/claude.ts',
    edits: [{ find: 'skipWebFetchPreflight: true, ', replace: '' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run claude gets settings that deny WebSearch, which the service lacks, and skip asking Anthropic about fetched pages',
        ],
      },
    ],
  },
  {
    defence: 'run: whatever listens in the place of the proxy gets prompts',
    file: 'lib/commands/run-relay.ts',
    edits: [
      { find: "isKnown = about?.name === 'privatemode-proxy'", replace: 'isKnown = about !== undefined' },
    ],
    tests: [
      {
        file: 'test/commands/run-relay.test.ts',
        names: [
          'the port that privatemode-proxy run opens for an agent gives no prompt to a program of another name that listens in the place of the proxy after a failure',
        ],
      },
    ],
  },
  {
    defence: 'run: what took the place of the proxy while the agent asked nothing gets prompts',
    file: 'lib/commands/run-relay.ts',
    edits: [
      { find: "socket.once('close', () => (isKnown = false))", replace: "socket.once('close', () => {})" },
    ],
    tests: [
      {
        file: 'test/commands/run-relay.test.ts',
        names: [
          'the port that privatemode-proxy run opens for an agent gives no prompt to a program that took over the port of the proxy while the agent was idle',
        ],
      },
    ],
  },
  {
    defence: 'run: a user is offered models of any name',
    file: 'lib/commands/run-models.ts',
    edits: [{ find: 'name !== chosen.name && isPlainName(name)', replace: 'name !== chosen.name' }],
    tests: [
      {
        file: 'test/commands/run-models.test.ts',
        names: [
          'privatemode-proxy run offers in opencode the chosen model and the listed ones with plain names, each with its limits',
        ],
      },
    ],
  },
  {
    defence: 'run: a session of pi goes to another provider',
    file: 'lib/commands/agents/pi.ts',
    edits: [{ find: '=== name ? undefined : {}))', replace: '=== name ? undefined : undefined))' }],
    tests: [
      {
        file: 'test/commands/run-pi-extension.test.ts',
        names: [
          'the extension that privatemode-proxy run gives to pi empties requests to another provider or to none, and leaves requests to the proxy unchanged',
        ],
      },
    ],
  },
  {
    defence: 'run: a user of pi changes to another provider',
    file: 'lib/commands/agents/pi.ts',
    edits: [{ find: 'if (ours !== undefined) await pi.setModel(ours);', replace: '' }],
    tests: [
      {
        file: 'test/commands/run-pi-extension.test.ts',
        names: [
          'the extension that privatemode-proxy run gives to pi switches back to the proxy if the user or another extension switches to another provider',
        ],
      },
    ],
  },
  {
    defence: 'run: a version of pi runs extensions of a repository',
    file: 'lib/commands/agents.ts',
    edits: [
      {
        find: "found === undefined || found.localeCompare(oldest, 'en', { numeric: true }) < 0",
        replace: 'found === undefined',
      },
    ],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run does not start pi with the version 0.73.1, which may run extensions of a repository without asking, or change settings',
        ],
      },
    ],
  },
  {
    defence: 'run: opencode replaces parts of its configuration',
    file: 'lib/commands/agents/agent.ts',
    edits: [{ find: "string.replaceAll('{', '\\\\u007b')", replace: 'string' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run lets no agent expand {env:…} or {file:…} in the name of the chosen model, also with --print',
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
          'the name of the provider that run gives to agents is new each time, with the reason, if its key file would lie in a directory of the project',
        ],
      },
    ],
  },
  {
    defence: 'run: an empty HOME puts the files of run into the project',
    file: 'lib/commands/provider-name.ts',
    edits: [{ find: 'isAbsolute(HOME) ? HOME : userInfo().homedir', replace: 'HOME' }],
    tests: [
      {
        file: 'test/commands/run-provider-name.test.ts',
        names: [
          'the name of the provider that run gives to agents is derived from a key below the home directory of the account if HOME is empty or no absolute path',
        ],
      },
    ],
  },
  {
    defence: 'the simulator: a web page reads its record, and gives it commands',
    file: 'simulator/control.ts',
    edits: [{ find: 'if (isOfPage(exchange.request.headers)) {', replace: 'if (false) {' }],
    tests: [
      {
        file: 'test/simulator/trust-control.test.ts',
        names: [
          'the control endpoint of the simulator refuses every request of a web page, and lets no page read its responses, also with --cors',
        ],
      },
    ],
  },
  {
    defence: 'run: a repository has the extension that pi loads',
    file: 'lib/commands/run.ts',
    edits: [{ find: '    makeStateDirectory(env, directory);\n', replace: '' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: ['privatemode-proxy run does not start pi if its extension file would lie in the project'],
      },
    ],
  },
  {
    defence: 'the simulator: a stream goes on under a secret that the service has forgotten',
    file: 'simulator/inference/respond.ts',
    edits: [
      { find: 'if (lookup(secretId) !== undefined) return', replace: 'if (lookup !== undefined) return' },
    ],
    tests: [
      {
        file: 'test/simulator/inference-rejections.test.ts',
        names: [
          'the simulated service breaks the stream at the message for which it no longer has the secret',
        ],
      },
    ],
  },
  {
    defence: 'run: the agent keeps the keys and the base URLs of the caller',
    file: 'lib/commands/agents.ts',
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
          'privatemode-proxy run removes from the environment of the agent API keys and variables that would send prompts elsewhere',
        ],
      },
    ],
  },
  {
    defence: 'a pipe in place of a file that is read again: it is empty at the second read',
    file: 'lib/watch-files.ts',
    edits: [{ find: 'if (!stat.isFile() && !stat.isDirectory())', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/listener/tls.test.ts',
        names: ['certificate and key files are refused at the start with config_invalid: a pipe'],
      },
      {
        file: 'test/config/api-key.test.ts',
        names: [
          'a file that is read again --api-key does not wait at a pipe: the start refuses it',
          'the watch of the key file does not wait at a pipe in place of the file: the old key stays, and the error says what to name',
        ],
      },
    ],
  },
  {
    defence: 'a reader of the log that does not read: a proxy that was stopped never ends',
    file: 'lib/cli.ts',
    edits: [
      {
        find: 'if (stdout.writableLength === 0 && stderr.writableLength > 0) process.exit();',
        replace: '',
      },
    ],
    tests: [
      {
        file: 'test/cli.test.ts',
        names: [
          'output that cannot be written a log that nobody reads neither keeps a program that is over alive, nor changes its exit code 0',
          'output that cannot be written a log that nobody reads neither keeps a program that is over alive, nor changes its exit code 1',
        ],
      },
      {
        file: 'test/gateway/shutdown.test.ts',
        names: [
          'shutdown of the program ends after SIGTERM although nobody reads its log any more, and exits with 0',
        ],
      },
    ],
  },
  {
    defence: 'the output of a command: a reader that pauses loses the rest of it',
    file: 'lib/cli.ts',
    edits: [
      {
        find: 'if (stdout.writableLength === 0 && stderr.writableLength > 0) process.exit();',
        replace: 'process.exit();',
      },
    ],
    tests: [
      {
        file: 'test/cli.test.ts',
        names: [
          'output that cannot be written a reader that pauses for seconds gets the whole output of a command',
        ],
      },
    ],
  },
  {
    defence: 'output that cannot be written: a command exits with 0 without it',
    file: 'lib/cli.ts',
    edits: [{ find: "if (code === 'EPIPE' || unwritten) return;", replace: 'if (Date.now() > 0) return;' }],
    tests: [
      {
        file: 'test/cli.test.ts',
        names: [
          'output that cannot be written a command whose output does not fit on the disk says so, and exits with 1',
        ],
      },
    ],
  },
  {
    defence: 'a client that nobody uses any more: it renews for ever',
    file: 'lib/client-library/session.ts',
    edits: [{ find: 'onDemand: true,', replace: 'onDemand: false,' }],
    tests: [
      {
        file: 'test/client-library/on-demand.test.ts',
        names: [
          'the client library renews the secret of a client that is used, and not that of a client that nobody uses',
        ],
      },
    ],
  },
  {
    defence: 'a session that renews on demand: it comes to rest while a request waits',
    file: 'lib/session/renewals.ts',
    edits: [{ find: '!requests.haveCome && !requests.areWaiting', replace: '!requests.haveCome' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session that renews on demand tries as often as another while a request waits, and rests after that',
        ],
      },
    ],
  },
];
