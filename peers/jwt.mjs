// A second opinion on tokens, by the jose that the TypeScript SDK brings along.
//
//   node jwt.mjs <folder with node_modules> make <issuer> <URL>      prints keys, tokens and proofs
//   node jwt.mjs <folder with node_modules> verify <issuer> <URL>    reads {keys, token} and prints the subject
import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, task, issuer, url] = process.argv.slice(2);
const jose = await import(pathToFileURL(createRequire(folder + "/package.json").resolve("jose")));

if (task === "verify") {
  const { keys, token } = JSON.parse(readFileSync(0, "utf8"));
  const { payload } = await jose.jwtVerify(token, jose.createLocalJWKSet(keys), { issuer, audience: url, typ: "at+jwt" });
  console.log(payload.sub);
} else {
  const made = [];
  for (const alg of ["RS256", "PS256", "ES256", "ES384", "EdDSA"]) {
    const { publicKey, privateKey } = await jose.generateKeyPair(alg, { extractable: true });
    const jwk = await jose.exportJWK(publicKey);
    const sign = (claims) =>
      new jose.SignJWT({ client_id: "jose", scope: "read", ...claims })
        .setProtectedHeader({ alg, typ: "at+jwt", kid: alg })
        .setIssuer(issuer)
        .setSubject("ada")
        .setAudience(url)
        .setIssuedAt()
        .setExpirationTime("1h")
        .sign(privateKey);
    const bound = await sign({ cnf: { jkt: await jose.calculateJwkThumbprint(jwk) } });
    const proof = await new jose.SignJWT({ htm: "POST", htu: url, ath: createHash("sha256").update(bound).digest("base64url"), jti: randomUUID() })
      .setProtectedHeader({ alg, typ: "dpop+jwt", jwk })
      .setIssuedAt()
      .sign(privateKey);
    made.push({ key: { ...jwk, kid: alg, alg, use: "sig" }, token: await sign({}), bound, proof });
  }
  console.log(JSON.stringify(made));
}
