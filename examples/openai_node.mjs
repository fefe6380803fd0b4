// npm install openai; node examples/openai_node.mjs
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: (process.env.PREFOLD_URL ?? "http://127.0.0.1:8000") + "/v1",
  apiKey: process.env.PREFOLD_KEY ?? "none", // what `prefold key` printed, where keys are set
});
const stream = await client.chat.completions.create({
  model: process.env.PREFOLD_MODEL ?? "smollm2",
  messages: [
    { role: "system", content: "You answer in one sentence." },
    { role: "user", content: "What is the capital of France?" },
  ],
  max_tokens: 32,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
  if (chunk.usage) {
    const cached = chunk.usage.prompt_tokens_details?.cached_tokens;
    console.log(`\n${chunk.usage.prompt_tokens} prompt tokens, of which cached: ${cached}`);
  }
}
