// Logs in to a protected server with the TypeScript SDK, lists its tools, and calls some.
//
//   node login.mjs <folder with node_modules> <package> <URL> [params of tools/call...]
//
// It prints "open" and each page to log in at, and reads a line with where that has led to; then a line of JSON with the
// names, and one for each call, with what the tool has answered or the code of the error.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, name, url, ...calls] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const v2 = name === "@modelcontextprotocol/client";
const { Client } = require(v2 ? name : name + "/client/index.js");
const { StreamableHTTPClientTransport } = require(v2 ? name : name + "/client/streamableHttp.js");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const redirect = "http://127.0.0.1:3456/callback"; // nobody listens there
const kept = {}; // what the SDK wants kept
let back; // where the last login has led

const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "typescript-sdk",
    redirect_uris: [redirect],
    application_type: "native",
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (discovery) => void (kept.discovery = discovery),
  async redirectToAuthorization(address) {
    console.log(`open ${address}`);
    back = new URL((await lines.next()).value);
  },
};

const unauthorized = (error) => back && /unauthorized|authoriz|OAuth/i.test(`${error.name} ${error.message}`);

// withLogin tries once more after a login.
async function withLogin(open, work) {
  for (;;) {
    const { client, transport } = open();
    try {
      await client.connect(transport);
      return await work(client);
    } catch (error) {
      if (!unauthorized(error)) throw error;
      const query = back.searchParams;
      back = undefined;
      await (v2 ? transport.finishAuth(query) : transport.finishAuth(query.get("code")));
    } finally {
      await client.close();
    }
  }
}

const open = () => ({
  client: new Client({ name: "typescript-sdk", version: "1" }),
  transport: new StreamableHTTPClientTransport(new URL(url), { authProvider: provider }),
});

const say = (line) => console.log(JSON.stringify(line));
say((await withLogin(open, (client) => client.listTools())).tools.map((tool) => tool.name));
for (const params of calls.map((text) => JSON.parse(text))) {
  try {
    say((await withLogin(open, (client) => client.callTool(params))).content[0].text);
  } catch (error) {
    say(error.code ?? String(error));
  }
}
process.exit(0); // it reads no more
