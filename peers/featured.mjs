// The features of the suite on a TypeScript SDK's server, over stdio.
//
//   node featured.mjs <folder with node_modules> <package>
import { createRequire } from "node:module";

const [folder, name] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const v2 = name === "@modelcontextprotocol/server";
const sdk = v2
  ? require(name)
  : { ...require(name + "/server/mcp.js"), ...require(name + "/server/completable.js"), ...require(name + "/types.js") };
const { McpServer, ResourceTemplate, completable, inputRequired } = sdk;
const { z } = require("zod");

const text = (said) => ({ content: [{ type: "text", text: said }] });
const capabilities = { logging: {}, resources: { subscribe: true }, tools: {} };
const size = { type: "object", properties: { size: { type: "string" } } };
const form = { message: "Which size?", requestedSchema: size };
const prompt = { maxTokens: 10, messages: [{ role: "user", content: { type: "text", text: "hi" } }] };
const style = completable(z.string(), (typed) => ["short", "thorough"].filter((s) => s.startsWith(typed)));

function make() {
  const server = new McpServer({ name: "typescript-sdk", version: "1" }, { capabilities });
  server.registerResource("config", "config://app", {}, (uri) => ({ contents: [{ uri: uri.href, text: "on" }] }));
  server.registerResource("user", new ResourceTemplate("users://{id}", { list: undefined }), {}, (uri, { id }) => ({
    contents: [{ uri: uri.href, text: "user " + id }],
  }));
  server.registerPrompt("review", { argsSchema: v2 ? z.object({ style }) : { style } }, ({ style }) => ({
    messages: [{ role: "user", content: { type: "text", text: `a ${style} review` } }],
  }));
  // A tool of v2 returns its question, also for legacy clients; one of v1 asks it.
  const asking = (tool, question, ask, read) =>
    v2
      ? server.registerTool(tool, {}, ({ mcpReq: { inputResponses } }) =>
          inputResponses?.q ? text(read(inputResponses.q)) : inputRequired({ inputRequests: { q: question() } }),
        )
      : server.registerTool(tool, {}, async () => text(read(await ask(server.server))));
  asking("elicit", () => inputRequired.elicit(form), (s) => s.elicitInput(form), (r) => r.content.size);
  asking("sample", () => inputRequired.createMessage(prompt), (s) => s.createMessage(prompt), (r) => r.content.text);
  asking("roots", () => inputRequired.listRoots(), (s) => s.listRoots(), (r) => r.roots[0].uri);
  server.registerTool("log", {}, async (context) => {
    await (v2 ? context.mcpReq.log("warning", "careful") : server.sendLoggingMessage({ level: "warning", data: "careful" }));
    return text("done");
  });
  const grams = { grams: z.number() };
  server.registerTool("weigh", { outputSchema: v2 ? z.object(grams) : grams }, () => ({ ...text("7 g"), structuredContent: { grams: 7 } }));
  // In 2026-07-28 the SDK sends an update to those who listen for it; before, whoever
  // has subscribed is the program's to know.
  const subscribed = new Set();
  const on = (method, schema, does) => server.server.setRequestHandler(v2 ? method : sdk[schema], (r) => (does(r.params.uri), {}));
  on("resources/subscribe", "SubscribeRequestSchema", (uri) => subscribed.add(uri));
  on("resources/unsubscribe", "UnsubscribeRequestSchema", (uri) => subscribed.delete(uri));
  server.registerTool("touch", {}, async () => {
    const modern = v2 && server.server.getNegotiatedProtocolVersion() >= "2026-07-28";
    if (modern || subscribed.has("config://app")) await server.server.sendResourceUpdated({ uri: "config://app" });
    return text("done");
  });
  return server;
}

if (v2) {
  require(name + "/stdio").serveStdio(make);
} else {
  const { StdioServerTransport } = require(name + "/server/stdio.js");
  await make().connect(new StdioServerTransport());
}
