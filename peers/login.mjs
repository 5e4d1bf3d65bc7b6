// Logs in to a protected server with the TypeScript SDK, and calls whoami and change.
//
//   node login.mjs <folder with node_modules> <package> <URL>
import { createRequire } from "node:module";

const [folder, name, url] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const v2 = name === "@modelcontextprotocol/client";
const { Client } = require(v2 ? name : name + "/client/index.js");
const { StreamableHTTPClientTransport } = require(v2 ? name : name + "/client/streamableHttp.js");

const redirect = "http://127.0.0.1:4711/callback";
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
    const response = await fetch(address, { redirect: "manual" });
    back = new URL(response.headers.get("location"));
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

for (const tool of ["whoami", "change"]) {
  const result = await withLogin(open, (client) => client.callTool({ name: tool, arguments: {} }));
  console.log(result.content[0].text);
}
