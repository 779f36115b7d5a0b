// What OpenAI's JavaScript package does with the server, unmodified: clients.mjs URL PLACE. Prints,
// by name, the trace of each row that failed, or null.
import { createRequire } from "node:module";
import assert from "node:assert";
import path from "node:path";

const [url, place] = process.argv.slice(2);
const OpenAI = createRequire(path.join(place, "index.js"))("openai");
const client = new OpenAI({ baseURL: url, apiKey: "e2b_any", maxRetries: 0 });
const messages = [{ role: "user", content: "how long?" }];
const ask = { model: "droste/turns", messages, context: "x".repeat(70) };

const rows = {
  async models() {
    const names = [];
    for await (const model of await client.models.list()) names.push(model.id);
    assert(names.includes("droste/turns"));
  },
  async completion() {
    const answer = await client.chat.completions.create(ask);
    assert.equal(answer.choices[0].message.content, "answer 70");
    assert(answer.usage.total_tokens > 0);
  },
  async completion_stream() {
    let text = "", reasoning = "", usage;
    const stream = await client.chat.completions.create(
      { ...ask, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      reasoning += chunk.choices[0]?.delta.reasoning_content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, "answer 70");
    assert(reasoning.includes("llm_query") && usage.total_tokens > 0);
  },
  async retried() {
    const waits = new OpenAI({ baseURL: url, apiKey: "e2b_any", maxRetries: 5, timeout: 700 });
    const answer = await waits.chat.completions.create({ model: "droste/slow", messages, seed: 2 });
    assert.equal(answer.choices[0].message.content, "waited");
  },
  async responses() {
    const tools = [{ type: "code_interpreter", container: { type: "auto" } }];
    const stream = client.responses.stream(
      { model: "droste/turns", input: "how long?", context: "x".repeat(70), tools });
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    const whole = await stream.finalResponse();
    assert.equal(whole.output_text, "answer 70");
    assert(kinds.includes("response.code_interpreter_call.completed"));
    assert.equal((await client.responses.retrieve(whole.id)).status, "completed");
    await client.responses.delete(whole.id);
  },
  async function_call() {
    const parameters = { type: "object", properties: { city: { type: "string" } },
      required: ["city"], additionalProperties: false };
    const about = { name: "get_weather", description: "The weather.", parameters };
    const tools = [{ type: "function", strict: true, ...about }];
    const one = await client.responses.create({ model: "droste/calling", input: "q", tools });
    const call = one.output.at(-1);
    assert.deepEqual([call.type, call.name], ["function_call", "get_weather"]);
    const two = await client.responses.create({ model: "droste/calling", tools,
      previous_response_id: one.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "rain" }] });
    assert.equal(two.output_text, "rain");
    const runner = client.chat.completions.runTools({ model: "droste/calling", messages,
      stream: true, tools: [{ type: "function",
        function: { ...about, parse: JSON.parse, function: ({ city }) => `rain in ${city}` } }] });
    assert.equal(await runner.finalContent(), "rain in Oslo");
  },
  async files() {
    const file = await OpenAI.toFile(Buffer.from("x".repeat(70)), "notes.txt");
    const made = await client.files.create({ file, purpose: "user_data" });
    assert.equal(await (await client.files.content(made.id)).text(), "x".repeat(70));
    const part = { type: "file", file: { file_id: made.id } };
    const answer = await client.chat.completions.create({ model: "droste/turns", messages: [
      { role: "user", content: [{ type: "text", text: "how long?" }, part] }] });
    assert.equal(answer.choices[0].message.content, "answer 70");
    assert((await client.files.delete(made.id)).deleted);
  },
  async containers() {
    const one = await client.containers.create({ name: "work" });
    const file = await OpenAI.toFile(Buffer.from("x".repeat(70)), "notes.txt");
    const made = await client.containers.files.create(one.id, { file });
    const ids = [];
    for await (const found of client.containers.files.list(one.id)) ids.push(found.id);
    assert.deepEqual(ids, [made.id]);
    const content = await client.containers.files.content.retrieve(
      made.id, { container_id: one.id });
    assert.equal(await content.text(), "x".repeat(70));
    const tools = [{ type: "code_interpreter", container: one.id }];
    const whole = await client.responses.create(
      { model: "droste/turns", input: "how long?", context: "x".repeat(70), tools });
    const call = whole.output.find((item) => item.type === "code_interpreter_call");
    assert.equal(call.container_id, one.id);
    await client.containers.files.delete(made.id, { container_id: one.id });
    await client.containers.delete(one.id);
  },
  async tools_of_a_provider() {
    const tools = [{ type: "function", function: { name: "weather", parameters: {} } }];
    const answer = await client.chat.completions.create({ model: "tool-calls", messages, tools });
    assert.equal(answer.choices[0].message.tool_calls[0].function.name, "weather");
  },
  async errors() {
    await assert.rejects(client.chat.completions.create({ model: "none", messages }),
      (why) => why instanceof OpenAI.NotFoundError && why.code === "model_not_found");
  },
};

const traces = {};
for (const [name, row] of Object.entries(rows))
  traces[name] = await row().then(() => null, (why) => why.stack);
console.log(JSON.stringify(traces));
