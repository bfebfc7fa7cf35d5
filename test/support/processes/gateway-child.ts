/**
 * A gateway in a process of its own, whose memory nobody else uses: `node gateway-child.ts OPTIONS`, those of
 * startGateway as JSON. Its session is always attested, and it serves the Responses API. It tells its port
 * over IPC, and ends with the channel.
 */
import { createTranslator } from '../../../lib/responses-api/translator.ts';
import { fakeSession, startGateway } from '../doors/gateway.ts';

const options = JSON.parse(process.argv[2] as string) as Parameters<typeof startGateway>[0];
const { port } = await startGateway({ ...options, session: fakeSession(), deps: { createTranslator } });
process.on('disconnect', () => process.exit());
process.send?.(port);
