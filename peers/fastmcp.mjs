// The tool add of beside.go on FastMCP.
//
//   node fastmcp.mjs <folder with node_modules>
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${folder}/node_modules/${file}`));
const { FastMCP } = await load("fastmcp/dist/FastMCP.js");
const { z } = await load("zod/index.js");

const server = new FastMCP({ name: "fastmcp", version: "1.0.0" });
server.addTool({
  name: "add",
  parameters: z.object({ a: z.number() }),
  execute: async ({ a }) => {
    if (a === 13) throw new TypeError("a tool that fails by an exception");
    process.stderr.write("the tool runs\n");
    return `${a}`;
  },
});
await server.start({ transportType: "stdio" });
