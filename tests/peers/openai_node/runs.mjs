// The official Node client of OpenAI's API, against a gateway: prints one JSON object of results.
// Arguments: the folder of the package, the base URL, the token.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, baseURL, apiKey] = process.argv.slice(2);
const entry = createRequire(`${folder}/package.json`).resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(entry).href);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = "openclaw:main";
const tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
};
const found = {};

const chat = (content, more = {}) =>
  client.chat.completions.create({ model, messages: [{ role: "user", content }], ...more });

const plain = await chat("MOCK:say:hello§");
found.chat = [plain.choices[0].message.content, plain.choices[0].finish_reason];
found.usage = plain.usage.total_tokens === plain.usage.prompt_tokens + plain.usage.completion_tokens;

let text = "";
for await (const chunk of await chat("MOCK:long:5:20", { stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
found.stream = text.length > 10;

const runner = client.chat.completions
  .stream({ model, messages: [{ role: "user", content: "MOCK:say:streamed§" }] });
found.helper = (await runner.finalChatCompletion()).choices[0].message.content;

const ask = 'MOCK:tool:get_weather:{"city":"Rome"}§';
const called = await chat(ask, { tools: [tool] });
const [call] = called.choices[0].message.tool_calls;
found.call = [called.choices[0].finish_reason, call.function.name, JSON.parse(call.function.arguments)];
const followed = await client.chat.completions.create({
  model,
  tools: [tool],
  messages: [
    { role: "user", content: ask },
    called.choices[0].message,
    { role: "tool", tool_call_id: call.id, content: "sun" },
    { role: "user", content: "MOCK:say:sunny§" },
  ],
});
found.followed = followed.choices[0].message.content;

const response = await client.responses.create({ model, input: "MOCK:say:hi§" });
found.response = [response.status, response.output_text];
const events = [];
for await (const event of await client.responses.create({
  model, input: "MOCK:say:hi§", stream: true,
})) {
  events.push(event.type);
}
found.events = events;
const { function: fn } = tool;
const asked = await client.responses.create({
  model, input: ask, user: "node", tools: [{ type: "function", strict: false, ...fn }],
});
found.responseCall = [asked.status, asked.output[0].type, asked.output[0].name];
const answered = await client.responses.create({
  model, user: "node", input: [
    { type: "function_call_output", call_id: asked.output[0].call_id, output: "sun" },
    { role: "user", content: "MOCK:say:dry§" },
  ],
});
found.responseAnswer = answered.output_text;

const failure = async (work) => {
  try {
    await work();
    return "none";
  } catch (error) {
    return [error.constructor.name, error.status ?? 0, error.code ?? ""];
  }
};
found.unknown = await failure(() => client.chat.completions.create({
  model: "gpt-4o", messages: [{ role: "user", content: "Hi" }],
}));
found.refused = await failure(() => chat("Hi", { n: 2 }));
const stranger = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
found.stranger = await failure(() => stranger.responses.create({ model, input: "Hi" }));
const image = { type: "image_url", image_url: { url: "http://127.0.0.1:9/cat.png" } };
found.image = await failure(() => chat([image]));
const open = await chat("MOCK:long:2000:20", { stream: true });
for await (const chunk of open) {
  if (chunk.choices[0]?.delta?.content) break;
}
open.controller.abort();
console.log(JSON.stringify(found));
