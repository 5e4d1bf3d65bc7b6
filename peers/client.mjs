// A peers.Session on the TypeScript SDK. A line on standard input asks, lines on
// standard output answer; the server's standard error is this process's.
//
//   node client.mjs <folder with node_modules> <server> [argument...]
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, command, ...args] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const client = new Client({ name: "typescript-sdk", version: "1" });
const calls = new Map(); // AbortControllers by the id of the question

const methods = {
  async connect() {
    let revision;
    const transport = new StdioClientTransport({ command, args, stderr: "inherit" });
    transport.setProtocolVersion = (negotiated) => (revision = negotiated);
    await client.connect(transport);
    return { revision };
  },
  async ping() {
    await client.ping();
  },
  async list({ cursor }) {
    const page = await client.listTools(cursor ? { cursor } : undefined);
    return { names: page.tools.map((tool) => tool.name), next: page.nextCursor ?? "" };
  },
  async call({ id, tool, arguments: given, progress }) {
    const options = { signal: calls.get(id).signal };
    if (progress) options.onprogress = () => say({ id, progress: true });
    const result = await client.callTool({ name: tool, arguments: given }, undefined, options);
    const text = result.content.map((block) => block.text ?? "").join("");
    return { text, isError: result.isError ?? false };
  },
  async close() {
    await client.close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, ...params } = JSON.parse(line);
  if (method === "cancel") {
    calls.get(id)?.abort("the caller has left");
    continue;
  }
  calls.set(id, new AbortController());
  methods[method]({ id, ...params })
    .then((result) => say({ id, result: result ?? {} }))
    .catch((error) => say({ id, error: { code: Number.isInteger(error.code) ? error.code : 0, message: String(error) } }))
    .finally(() => calls.delete(id));
}
