/** The type of the rows that describe coding agents for `run`, and the parts that all rows share. */

export interface Model {
  readonly name: string;
  /**
   * `context`: tokens of a request and its response together. `output`: the most tokens of a response. If
   * nobody states limits, the member is undefined, and the agent assumes limits of its own.
   */
  readonly limits: { readonly context: number; readonly output: number } | undefined;
}

/** Where an agent has to send its prompts. */
export interface Place {
  /** The URL for prompts: http://HOST:PORT, without a slash at the end. */
  readonly url: string;
  /** The key that the agent sends to `url`. */
  readonly key: string;
  readonly model: Model;
  /** The proxy's aliases for the agent's own model names. If empty, the agent must not use the names. */
  readonly aliases: readonly string[];
  /** The models that the agent may offer to its user: `model`, and others that the service lists. */
  readonly models: readonly Model[];
  /** The path at which the agent's `file` was written. */
  readonly file: string;
  /**
   * Hosts for which no HTTP proxy is used: the host of `url`, and the caller's hosts. The agent's own tools
   * may need the caller's hosts.
   */
  readonly direct: { readonly no_proxy: string; readonly NO_PROXY: string };
}

export interface Agent {
  readonly install: string;
  /** The oldest version that the settings of `run` keep on the proxy, in the form that --version prints. */
  readonly oldest?: string;
  /** A file that the agent has to read. The file is in the user's state directory, never in a project. */
  readonly file?: { readonly name: string; readonly text: string };
  /**
   * An endpoint that the agent cannot do without, by its name in GET /v1, and the flag with which the proxy
   * serves the endpoint.
   */
  readonly needs?: readonly [endpoint: string, flag: string];
  /**
   * Variables that the agent gets, in addition to the caller's environment without the variables of REMOVED.
   * Like `args`, these variables win over the agent's own files.
   */
  readonly env: (place: Place) => Readonly<Record<string, string>>;
  /** Arguments that the agent gets in front of the user's own arguments (ARGS). */
  readonly args: (place: Place) => readonly string[];
  /** Matches the start of an argument that would undo the settings of `run`; its value follows `=`. */
  readonly refused: RegExp;
  /** The model that the agent requests by default. Only agents that can keep their own names have it. */
  readonly ownModel?: string;
  /** The agent's arguments that continue its last conversation. */
  readonly goOn: string;
}

/** The key that agents send, which the proxy replaces by the real key. */
export const KEY = 'placeholder';
/**
 * The name of the provider in an agent's configuration. A file that configures the same provider can add
 * headers and members to a request, but cannot send it to another host or model.
 */
export const PROVIDER = 'privatemode';

/**
 * Writes JSON; a JSON string is also valid in TOML. Opening braces in strings are escaped, because opencode
 * replaces `{env:NAME}` by a variable and `{file:PATH}` by a file in the text of its configuration, before it
 * parses this text as JSON.
 */
export const literal = (value: unknown): string =>
  JSON.stringify(value).replace(/"(?:[^"\\]|\\.)*"/g, (string) => string.replaceAll('{', '\\u007b'));
