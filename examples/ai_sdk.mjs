// npm install ai @ai-sdk/openai-compatible; node examples/ai_sdk.mjs
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";

const prefold = createOpenAICompatible({
  name: "prefold",
  baseURL: (process.env.PREFOLD_URL ?? "http://127.0.0.1:8000") + "/v1",
  apiKey: process.env.PREFOLD_KEY ?? "none",
  includeUsage: true,
});
const result = streamText({
  model: prefold(process.env.PREFOLD_MODEL ?? "smollm2"),
  system: "You answer in one sentence.",
  prompt: "What is the capital of France?",
  maxOutputTokens: 32,
});
for await (const text of result.textStream) {
  process.stdout.write(text);
}
const usage = await result.usage;
console.log(`\n${usage.inputTokens} input tokens, of which cached: ${usage.cachedInputTokens}`);
