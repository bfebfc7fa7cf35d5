/** The package `privatemode-ai`. */
export { type ErrorCode, PrivatemodeError } from '../errors.ts';
export { ERRORS } from './errors.ts';
export { createPrivatemodeFetch, type PrivatemodeFetch } from './fetch.ts';
export type { ClientVerdict, PrivatemodeOptions, Protection, Verification } from './options.ts';
export { PrivatemodeAI, type PrivatemodeAIOptions } from './privatemode-ai.ts';
export { VerificationError } from './verification.ts';
