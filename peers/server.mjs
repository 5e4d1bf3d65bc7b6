// The suite's tools on the TypeScript SDK's server.
//
//   node server.mjs <folder with node_modules> stdio|"streamable HTTP"
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";

const [folder, over] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const { McpServer, createMcpHandler } = require("@modelcontextprotocol/server");
const { z } = require("zod");

const text = (said) => ({ content: [{ type: "text", text: said }] });
const message = z.object({ message: z.string() });

let grown = false; // by the tool grow
let tellOthers = () => {}; // that it has

// make is called for every connection, and over HTTP for every request.
function make() {
  const server = new McpServer({ name: "typescript-sdk", version: "1" }, { capabilities: { tools: { listChanged: true } } });
  const addGrown = () => server.registerTool("grown", {}, () => text(""));
  server.registerTool("echo", { inputSchema: message }, ({ message }) => text(message));
  server.registerTool("fail", { inputSchema: message }, ({ message }) => {
    throw new Error(message);
  });
  server.registerTool("slow", { inputSchema: z.object({ seconds: z.number(), steps: z.number() }) }, slow);
  server.registerTool("grow", {}, () => {
    if (!grown) addGrown();
    grown = true;
    tellOthers();
    return text("");
  });
  if (grown) addGrown();
  return server;
}

async function slow({ seconds, steps }, { mcpReq: { signal, notify, _meta } }) {
  signal.addEventListener("abort", () => console.error("slow: given up"));
  for (let progress = 1; progress <= steps; progress++) {
    await setTimeout((seconds * 1000) / steps, undefined, { signal });
    await notify({
      method: "notifications/progress",
      params: { progressToken: _meta.progressToken, progress, total: steps },
    });
  }
  return text("done");
}

if (over === "stdio") {
  require("@modelcontextprotocol/server/stdio").serveStdio(make);
} else {
  const { toNodeHandler } = require("@modelcontextprotocol/node");
  const handler = createMcpHandler(make);
  tellOthers = () => handler.notify.toolsChanged();
  const listening = createServer(toNodeHandler(handler));
  listening.listen(process.env.PORT, "127.0.0.1", () => {
    console.error(`serving http://127.0.0.1:${listening.address().port}/mcp`);
  });
  process.on("SIGINT", () => listening.close());
}
