// A server of the TypeScript SDK over WebSocket, for which that SDK has no transport: the few lines that a program needs, on package ws. It prints its address, and
// the status with which a connection was closed. It ends with its standard input.
//
//   node websocket_server.mjs <folder with the SDK> <package> <folder with ws>
import { createRequire } from "node:module";

const [folder, name, folderOfWS] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const { McpServer } = require(name + "/server/mcp.js");
const { z } = require("zod");
const { WebSocketServer } = createRequire(folderOfWS + "/package.json")("ws");

class WebSocketTransport {
  constructor(socket) {
    this.socket = socket;
  }
  async start() {
    this.socket.on("message", (data) => this.onmessage?.(JSON.parse(data)));
    this.socket.on("close", () => this.onclose?.());
  }
  async send(message) {
    this.socket.send(JSON.stringify(message));
  }
  async close() {
    this.socket.close();
  }
}

const sockets = new WebSocketServer({ host: "127.0.0.1", port: 0, handleProtocols: (offered) => offered.has("mcp") && "mcp" });
sockets.on("listening", () => console.log(`ws://127.0.0.1:${sockets.address().port}`));
sockets.on("connection", (socket) => {
  const server = new McpServer({ name: "typescript-sdk", version: "1" });
  server.registerTool("echo", { inputSchema: { text: z.string() } }, async ({ text }) => {
    await new Promise((ponged) => socket.once("pong", ponged).ping());
    return { content: [{ type: "text", text }] };
  });
  server.connect(new WebSocketTransport(socket));
  socket.on("close", (status) => console.log(`closed ${status}`));
});
process.stdin.on("end", () => process.exit()).resume();
