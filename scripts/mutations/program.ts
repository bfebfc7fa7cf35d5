/** Faults in settings, clients, limits, logs, and what `run` gives to agents. */
import type { Mutation } from './mutation.ts';

export const PROGRAM: readonly Mutation[] = [
  {
    defence: 'the listener of the metrics: it shows the status page',
    file: 'lib/open-admin.ts',
    edits: [{ find: 'ROUTES[flag]', replace: "ROUTES['admin-address']" }],
    tests: [
      {
        file: 'test/observe/metrics-listener.test.ts',
        names: ['--metrics-address serves the metrics of all requests, and no status page'],
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
    file: 'lib/open-admin.ts',
    edits: [{ find: '    refuseForeignPage(req, policy);', replace: '    void refuseForeignPage;' }],
    tests: [
      {
        file: 'test/observe/admin.test.ts',
        names: [
          'the listener of --admin-address refuses on every path a foreign host name and a foreign web page, and serves its own names',
        ],
      },
    ],
  },
  {
    defence: 'the expiry of a client: its tokens stay good',
    file: 'lib/access/authenticate.ts',
    edits: [
      {
        find: 'client.expires !== undefined && now >= client.expires',
        replace: 'client.expires !== undefined && now < 0',
      },
    ],
    tests: [
      {
        file: 'test/access/authenticate.test.ts',
        names: [
          'authentication of a client refuses a client from its expiry on, and says whom to ask for more time',
        ],
      },
    ],
  },
  {
    defence: 'the models of a client: it may use any',
    file: 'lib/access/authenticate.ts',
    edits: [
      {
        find: 'models.some((pattern) => covers(pattern, model))',
        replace: 'models.some((pattern) => covers(pattern, model) || model.length > 0)',
      },
    ],
    tests: [
      {
        file: 'test/access/authenticate.test.ts',
        names: ['a client may use only the models that a pattern of its list covers as a whole'],
      },
    ],
  },
  {
    defence: 'the requests per minute: there may be one more',
    file: 'lib/limits/count-requests.ts',
    edits: [
      {
        find: 'used.times.length >= requestsPerMinute',
        replace: 'used.times.length > requestsPerMinute',
      },
    ],
    tests: [
      {
        file: 'test/limits/count-requests.test.ts',
        names: [
          'the limit requestsPerMinute admits its number of requests within any 60 s, and one more exactly 60 s after the first',
        ],
      },
    ],
  },
  {
    defence: 'the places that are kept: a client that floods gets them too',
    file: 'lib/limits/fair-queue.ts',
    edits: [
      { find: 'queue.running === 0 ? limit : limit - kept', replace: 'queue.running === 0 ? limit : limit' },
    ],
    tests: [
      {
        file: 'test/limits/fair-queue.test.ts',
        names: [
          'the queue of --max-in-flight keeps a sixteenth of 8 or more places, rounded up, free for clients that have nothing running',
        ],
      },
    ],
  },
  {
    defence: 'other trust roots: they may be used for the real service',
    file: 'lib/config/trust-roots.ts',
    edits: [{ find: 'if (production !== undefined)', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/config/trust-roots.test.ts',
        names: [
          'the rule for production hosts counts "api.privatemode.ai" as production',
          'the rule for production hosts counts "api.privatemode.ai." as production',
          'the rule for production hosts counts "x:notaport" as production',
        ],
      },
    ],
  },
  {
    defence: 'a certificate without its key: the proxy starts without TLS',
    file: 'lib/config/rules.ts',
    edits: [{ find: 'if (needed !== undefined &&', replace: 'if (Date.now() < 0 &&' }],
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
    defence: 'NODE_TLS_REJECT_UNAUTHORIZED: it switches off the checks of certificates',
    file: 'lib/config/config.ts',
    edits: [{ find: "if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0')", replace: 'if (Date.now() < 0)' }],
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
    edits: [{ find: '!flag.retired && !flag.commandLineOnly', replace: '!flag.retired' }],
    tests: [
      {
        file: 'test/config/environment.test.ts',
        names: [
          'settings in the environment the proxy refuses to start: unknown setting in the environment: PRIVATEMODE_PROXY_UNSAFE_TRUST_ROOTS; --help lists all settings',
        ],
      },
    ],
  },
  {
    defence: 'a mistyped setting in the environment: a pin of the manifest is left out without a word',
    file: 'lib/config/environment.ts',
    edits: [{ find: '!variable.toUpperCase().startsWith(PREFIX)', replace: 'Date.now() > 0' }],
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
    edits: [{ find: '[bytes < 32,', replace: '[Date.now() < 0,' }],
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
    defence: 'a file that is read slowly: other reads of it begin meanwhile, and its old content comes back',
    file: 'lib/watch-files.ts',
    edits: [{ find: 'last = last.then(look);', replace: 'last = look();' }],
    tests: [
      {
        file: 'test/watch-files.test.ts',
        names: [
          'a watched file that is read slowly: no other read begins, and one follows for all that was asked for meanwhile',
        ],
      },
    ],
  },
  {
    defence: 'a fault of the program: its words, which may quote anything, are printed',
    file: 'lib/cli.ts',
    edits: [
      {
        find: "(fault.stack ?? '').split('\\n').filter((line) => /^\\s+at /.test(line))",
        replace: "[fault.stack ?? '']",
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
        file: 'test/commands/run-golden.test.ts',
        names: [
          'privatemode-proxy run hands claude the arguments, variables and files that agents/claude.txt records',
        ],
      },
    ],
  },
  {
    defence: 'run: opencode may use other providers too',
    file: 'lib/commands/agents/opencode.ts',
    edits: [{ find: 'enabled_providers: [PROVIDER]', replace: 'enabled_providers: []' }],
    tests: [
      {
        file: 'test/commands/run-golden.test.ts',
        names: [
          'privatemode-proxy run hands opencode the arguments, variables and files that agents/opencode.txt records',
        ],
      },
    ],
  },
  {
    defence: 'run: any text of the service goes into the configuration of an agent',
    file: 'lib/commands/run-models.ts',
    edits: [{ find: ' || !/^[A-Za-z0-9][\\w.:@/+-]{0,255}$/.test(id)', replace: '' }],
    tests: [
      {
        file: 'test/commands/run.test.ts',
        names: [
          'privatemode-proxy run does not take a model named {env:GITHUB_TOKEN} from the list',
          'privatemode-proxy run does not take a model named __proto__ from the list',
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
        file: 'test/commands/run-golden.test.ts',
        names: [
          'privatemode-proxy run hands claude the arguments, variables and files that agents/claude.txt records',
        ],
      },
    ],
  },
  {
    defence: 'run: whatever listens in the place of the proxy gets prompts',
    file: 'lib/commands/run-models.ts',
    edits: [{ find: "if (about?.name === 'privatemode-proxy')", replace: 'if (about != null)' }],
    tests: [
      {
        file: 'test/commands/run-relay.test.ts',
        names: [
          'the port that privatemode-proxy run opens for an agent gives no prompt to a program of another name that has taken over the port of the proxy',
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
          'privatemode-proxy run does not start pi with the version 0.73.1 on output 1, which may run extensions of a repository without asking, or change settings',
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
    defence: 'run: white space behind a setting hides it, which Codex does not see',
    file: 'lib/commands/agents/codex.ts',
    edits: [{ find: `[\\p{White_Space}"']*)(?=`, replace: ')(?=' }],
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
];
