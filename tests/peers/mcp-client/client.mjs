// The official TypeScript clients, old and new. The argument is JSON:
//   {"library": "sdk" | "client", "stdio": {...} | "url": "...", "headers": {...}, "calls": [[name, arguments], ...]}
// The output is JSON: {"server", "tools", "results"}, or {"error"} when there is no connection.

const asked = JSON.parse(process.argv[2]);

async function load(library) {
  if (library === "client") {
    const main = await import("@modelcontextprotocol/client");
    const stdio = await import("@modelcontextprotocol/client/stdio");
    return { ...main, ...stdio };
  }
  const parts = ["index", "stdio", "streamableHttp"];
  const loaded = await Promise.all(
    parts.map((part) => import(`@modelcontextprotocol/sdk/client/${part}.js`)),
  );
  return Object.assign({}, ...loaded);
}

const { Client, StdioClientTransport, StreamableHTTPClientTransport } = await load(asked.library);
const transport = asked.stdio
  ? new StdioClientTransport({ ...asked.stdio, stderr: "inherit" })
  : new StreamableHTTPClientTransport(new URL(asked.url), {
      requestInit: { headers: asked.headers },
    });
const client = new Client({ name: "peer", version: "1" });

async function attempt(act) {
  try {
    return await act();
  } catch (error) {
    return { error: String(error.message ?? error), code: error.code };
  }
}

const output = await attempt(async () => {
  await client.connect(transport);
  const { tools } = await client.listTools();
  const results = [];
  for (const [name, given] of asked.calls) {
    results.push(await attempt(() => client.callTool({ name, arguments: given })));
  }
  return { server: client.getServerVersion(), tools: tools.map((tool) => tool.name), results };
});
process.stdout.write(JSON.stringify(output));
await attempt(() => client.close());
process.exit(0);
