// Runs oidc-provider, an authorization server that others have written, for one protected server.
// Its users sign in with any name, and ada is a developer.
//
//   node oidc.mjs <folder with node_modules> <URL of the protected server> <life of a token in seconds>
//
// It prints its issuer, then a line for each thing it has done, and ends with its input.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, resource, life] = process.argv.slice(2);
const { resolve } = createRequire(folder + "/package.json");
const { Provider, errors } = await import(pathToFileURL(resolve("oidc-provider")));

const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    { client_id: "machine", client_secret: "machine-secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
  ],
  scopes: ["offline_access", "read"],
  rotateRefreshToken: true,
  extraTokenClaims: (_, token) => ({ roles: token.accountId === "ada" ? ["guest", "developer"] : ["guest"] }),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo(_, asked) {
        if (asked !== resource) throw new errors.InvalidTarget();
        return { scope: "read", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: Number(life) };
      },
    },
  },
});

const tell = (line) => process.stdout.write(line + "\n");
provider.on("registration_create.success", () => tell("registered"));
provider.on("grant.success", (context) => tell(`granted ${context.oidc.params.grant_type}`));
provider.on("grant.error", (_, error) => tell(`refused ${error.error}: ${error.error_description}`));
provider.on("authorization.error", (_, error) => tell(`refused ${error.error}: ${error.error_description}`));
provider.on("registration_create.error", (_, error) => tell(`refused ${error.error}: ${error.error_description}`));
provider.on("grant.revoked", () => tell("revoked"));
provider.on("refresh_token.destroyed", () => tell("ended a refresh token"));
provider.on("server_error", (_, error) => tell(`failed: ${error.stack}`));

server.on("request", provider.callback());
tell(issuer);
process.stdin.resume().on("end", () => process.exit(0));
