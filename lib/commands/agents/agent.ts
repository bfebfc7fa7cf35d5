/** Describes a coding agent for `run`: the row of an agent, and the parts that all rows share. */

export interface Model {
  readonly name: string;
  /**
   * Tokens of the context window, for a request and its response together, and at most of a response.
   * Undefined if nobody states them; the agent then assumes limits of its own.
   */
  readonly limits: { readonly context: number; readonly output: number } | undefined;
}

/** Where an agent has to send its prompts. */
export interface Place {
  /** http://HOST:PORT, without a slash. */
  readonly url: string;
  /** What the agent sends as its key there. */
  readonly key: string;
  readonly model: Model;
  /** Aliases of the proxy, by which the agent may keep its own names of models; empty: it may not. */
  readonly aliases: readonly string[];
  /** The models that it may offer to its user: `model`, and other listed ones. */
  readonly models: readonly Model[];
  /** Path where the agent's `file` was written. */
  readonly file: string;
  /**
   * Hosts that no HTTP proxy is used for: those of the caller, which the agent's own tools may need, and the
   * host of `url`.
   */
  readonly direct: { readonly no_proxy: string; readonly NO_PROXY: string };
}

export interface Agent {
  readonly install: string;
  /** The oldest version whose settings make it use the proxy alone, in the form that --version prints. */
  readonly oldest?: string;
  /** A file that the agent has to read. It is kept in the user's state directory, never in a project. */
  readonly file?: { readonly name: string; readonly text: string };
  /**
   * The endpoint that the agent cannot do without, as GET /v1 lists it, and the flag with which the proxy
   * serves it.
   */
  readonly needs?: readonly [endpoint: string, flag: string];
  /**
   * Variables that the agent gets in addition to the caller's environment without REMOVED. Like `args`, they
   * win over the agent's own files.
   */
  readonly env: (place: Place) => Readonly<Record<string, string>>;
  /** Arguments that the agent gets in front of ARGS. */
  readonly args: (place: Place) => readonly string[];
  /** Matches the beginning of arguments that would undo these settings; their values come behind `=`. */
  readonly refused: RegExp;
  /** A model name that it asks for if no model is chosen; only for an agent that can keep its own names. */
  readonly ownModel?: string;
  /** Its arguments that continue the last conversation. */
  readonly goOn: string;
}

/** What agents send as their key: the proxy adds the real one. */
export const KEY = 'placeholder';
/**
 * The name of the provider in an agent's configuration. A file that uses it can add headers and members to a
 * request, but reach no other host or model.
 */
export const PROVIDER = 'privatemode';

/**
 * JSON text, also valid as a TOML string, in which no agent finds anything to replace. opencode replaces
 * `{env:NAME}` by a variable and `{file:PATH}` by a file in the text of its configuration, before it parses
 * that as JSON.
 */
export const literal = (value: unknown): string =>
  JSON.stringify(value).replace(/"(?:[^"\\]|\\.)*"/g, (string) => string.replaceAll('{', '\\u007b'));
