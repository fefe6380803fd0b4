// The official Node clients as a service: one request to make on each line of standard input, what
// the client saw of the answer on one line of standard output. The first line tells versions.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import OpenAI7 from "openai-7";

const PATIENCE_MS = 5000;

class Waits extends Error {}

class Seen {
  outcome = "ok";
  text = "";
  finish = null;
  error = null;
  message = null;

  take(text, finish) {
    this.text += text ?? "";
    this.finish = finish ?? this.finish;
  }

  fail(error) {
    this.outcome = "error";
    this.error ??= error?.constructor?.name ?? typeof error;
    this.message ??= String(error?.message ?? error);
  }
}

async function chat(client, { model, prompt, stream }, seen) {
  const request = { model, messages: [{ role: "user", content: prompt }] };
  if (!stream) {
    const answer = await client.chat.completions.create(request);
    seen.take(answer.choices[0].message.content, answer.choices[0].finish_reason);
    return;
  }
  const options = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create({ ...request, ...options })) {
    seen.take(chunk.choices?.[0]?.delta?.content, chunk.choices?.[0]?.finish_reason);
  }
}

async function completion(client, { model, prompt, stream }, seen) {
  const request = { model, prompt };
  if (!stream) {
    const answer = await client.completions.create(request);
    seen.take(answer.choices[0].text, answer.choices[0].finish_reason);
    return;
  }
  const options = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.completions.create({ ...request, ...options })) {
    seen.take(chunk.choices?.[0]?.text, chunk.choices?.[0]?.finish_reason);
  }
}

async function response(client, { model, prompt, stream }, seen) {
  const request = { model, input: prompt };
  if (!stream) {
    const answer = await client.responses.create(request);
    seen.take(answer.output_text, answer.status);
    return;
  }
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_text.delta") seen.take(event.delta);
    if (event.type === "response.completed") seen.take("", "completed");
    if (event.type === "response.incomplete") seen.take("", "incomplete");
    if (event.type === "response.failed" || event.type === "error") seen.fail(event);
  }
}

const OPENAI = {
  "/v1/chat/completions": chat,
  "/v1/completions": completion,
  "/v1/responses": response,
};

async function openai(Client, task, seen) {
  const options = { baseURL: `${task.url}/v1`, apiKey: task.key, maxRetries: 0, timeout: 15000 };
  await OPENAI[task.path](new Client(options), task, seen);
}

function aiModel({ url, key, path, model }) {
  const options = { baseURL: `${url}/v1`, apiKey: key };
  if (path === "/v1/responses") return createOpenAI(options).responses(model);
  const provider = createOpenAICompatible({ ...options, name: "prefold", includeUsage: true });
  return path === "/v1/completions"
    ? provider.completionModel(model)
    : provider.chatModel(model);
}

async function ai(task, seen) {
  const options = { model: aiModel(task), prompt: task.prompt, maxRetries: 0 };
  if (!task.stream) {
    const answer = await generateText(options);
    seen.take(answer.text, answer.finishReason);
    return;
  }
  // What it reports through `onError` stands in the full stream too.
  for await (const part of streamText({ ...options, onError: () => {} }).fullStream) {
    if (part.type === "text-delta") seen.take(part.text);
    if (part.type === "finish") seen.take("", part.finishReason);
    if (part.type === "error") seen.fail(part.error);
  }
}

const CLIENTS = {
  node: (task, seen) => openai(OpenAI, task, seen),
  node7: (task, seen) => openai(OpenAI7, task, seen),
  ai,
};

function version(name) {
  const path = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")).version;
}

globalThis.AI_SDK_LOG_WARNINGS = false;
const names = ["openai", "openai-7", "ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai"];
const versions = Object.fromEntries(names.map((name) => [name, version(name)]));
console.log(JSON.stringify({ node: process.versions.node, ...versions }));

function patience() {
  let timer;
  const ended = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Waits("nothing more came")), PATIENCE_MS);
  });
  return { ended, over: () => clearTimeout(timer) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line);
  const seen = new Seen();
  const limit = patience();
  try {
    await Promise.race([CLIENTS[task.client](task, seen), limit.ended]);
  } catch (error) {
    seen.fail(error);
  } finally {
    limit.over();
  }
  console.log(JSON.stringify(seen));
}
process.exit(0);
