/** Node's Buffer for runtimes without it: the build of the portable library puts it where the code names `Buffer`. */
export { Buffer } from 'buffer/';
