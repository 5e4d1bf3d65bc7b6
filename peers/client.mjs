// A peers.Session on the TypeScript SDK. A line on standard input asks, lines on
// standard output answer; the server's standard error is this process's.
//
//   node client.mjs <folder with node_modules> <package> <revision> <URL, or "" for> [command...]
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, name, revision, url, command, ...args] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const v2 = name === "@modelcontextprotocol/client";
const { Client } = require(v2 ? name : name + "/client/index.js");
const { StdioClientTransport } = require(v2 ? name + "/stdio" : name + "/client/stdio.js");
const { StreamableHTTPClientTransport } = require(v2 ? name : name + "/client/streamableHttp.js");
const { SSEClientTransport } = require(v2 ? name : name + "/client/sse.js");

const modern = revision >= "2026-07-28";
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const calls = new Map(); // AbortControllers by the id of the question
const changes = { given: false, listener: null };

const client = new Client(
  { name: "typescript-sdk", version: "1" },
  {
    capabilities: { elicitation: {}, sampling: {}, roots: {} },
    supportedProtocolVersions: [revision], // v1 knows neither this nor the next
    versionNegotiation: { mode: modern ? { pin: revision } : "legacy" },
    listChanged: {
      tools: {
        autoRefresh: false,
        debounceMs: 0,
        onChanged() {
          changes.given = true;
          changes.listener?.();
        },
      },
    },
  },
);
// answers are the user's, the model's and the host's. V1 wants schemas for names.
const answers = {
  "elicitation/create": () => ({ action: "accept", content: { size: "small" } }),
  "sampling/createMessage": () => ({ role: "assistant", model: "m", content: { type: "text", text: "hello" } }),
  "roots/list": () => ({ roots: [{ uri: "file:///home" }] }),
};
const types = v2 ? {} : require(name + "/types.js");
const schemas = {
  "elicitation/create": types.ElicitRequestSchema,
  "sampling/createMessage": types.CreateMessageRequestSchema,
  "roots/list": types.ListRootsRequestSchema,
  "notifications/message": types.LoggingMessageNotificationSchema,
  "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
};
const named = (method) => (v2 ? method : schemas[method]);
for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(named(method), answer);
// told collects what the notifications of a method say.
function told(method, what) {
  const box = { given: [], listener: null };
  client.setNotificationHandler(named(method), ({ params }) => {
    box.given.push(what(params));
    box.listener?.();
  });
  return async (id) => {
    const { signal } = calls.get(id);
    await new Promise((resolve, reject) => {
      box.listener = resolve;
      signal.onabort = () => reject(signal.reason);
      if (box.given.length) resolve();
    });
    return box.given.shift();
  };
}
const logged = told("notifications/message", (params) => params.data);
const updated = told("notifications/resources/updated", (params) => params.uri);

// Stdio is a subclass so that v2 probes in place: for the SDK's own it runs a
// second server first, which is not the one to watch.
class Stdio extends StdioClientTransport {}
const transport = url
  ? new (url.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(url))
  : new Stdio({ command, args, stderr: "inherit" });

// first asks for one page: without a cursor listTools of v2 fetches them all.
const first = () => (v2 ? client.request({ method: "tools/list" }) : client.listTools());

const methods = {
  async connect() {
    let negotiated;
    const set = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = (version) => {
      negotiated = version;
      set?.(version);
    };
    await client.connect(transport);
    return { revision: v2 ? client.getNegotiatedProtocolVersion() : negotiated };
  },
  async ping() {
    await client.ping();
  },
  async list({ cursor }) {
    const page = await (cursor ? client.listTools({ cursor }) : first());
    return { names: page.tools.map((tool) => tool.name), next: page.nextCursor ?? "" };
  },
  async call({ id, tool, arguments: given, progress }) {
    const options = { signal: calls.get(id).signal };
    if (progress) options.onprogress = () => say({ id, progress: true });
    const params = { name: tool, arguments: given };
    const result = await (v2 ? client.callTool(params, options) : client.callTool(params, undefined, options));
    const text = result.content.map((block) => block.text ?? "").join("");
    return { text, isError: result.isError ?? false };
  },
  async changed({ id }) {
    const { signal } = calls.get(id);
    await new Promise((resolve, reject) => {
      changes.listener = resolve;
      signal.onabort = () => reject(signal.reason);
      if (changes.given) resolve();
    });
    changes.given = false;
  },
  async read({ uri }) {
    return { text: (await client.readResource({ uri })).contents[0]?.text ?? "" };
  },
  async prompt({ name, arguments: given }) {
    return { text: (await client.getPrompt({ name, arguments: given })).messages[0].content.text };
  },
  async complete({ prompt, argument, typed }) {
    const ref = { type: "ref/prompt", name: prompt };
    return { values: (await client.complete({ ref, argument: { name: argument, value: typed } })).completion.values };
  },
  async logged({ id, tool }) {
    const params = { name: tool };
    if (modern) params._meta = { "io.modelcontextprotocol/logLevel": "info" };
    else await client.setLoggingLevel("info");
    await client.callTool(params);
    return { text: JSON.stringify(await logged(id)) };
  },
  async structured({ tool }) {
    return { content: (await client.callTool({ name: tool })).structuredContent };
  },
  async updated({ id, uri, tool }) {
    const open = modern ? await client.listen({ resourceSubscriptions: [uri] }) : await client.subscribeResource({ uri });
    await client.callTool({ name: tool });
    const text = await updated(id);
    await (modern ? open.close() : client.unsubscribeResource({ uri }));
    return { text };
  },
  async close() {
    await transport.terminateSession?.();
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
