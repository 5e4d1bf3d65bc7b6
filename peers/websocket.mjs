// A client of the TypeScript SDK over WebSocket, which calls a tool and prints the answer.
//
//   node --experimental-websocket websocket.mjs <folder with node_modules> <package> <URL> <tool>
import { createRequire } from "node:module";

const [folder, name, url, tool] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const { Client } = require(name + "/client/index.js");
const { WebSocketClientTransport } = require(name + "/client/websocket.js");

const client = new Client({ name: "typescript-sdk", version: "1" });
await client.connect(new WebSocketClientTransport(new URL(url)));
const { content } = await client.callTool({ name: tool, arguments: {} });
console.log(content[0].text);
await client.close();
