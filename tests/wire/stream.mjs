// One streamed chat through the official Node client; what it saw, as one line of JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const seen = { text: "", finish: null, error: null };
try {
  const stream = await client.chat.completions.create({
    model: "m",
    messages: [{ role: "user", content: "hello" }],
    stream: true,
  });
  for await (const chunk of stream) {
    seen.text += chunk.choices[0]?.delta?.content ?? "";
    seen.finish = chunk.choices[0]?.finish_reason ?? seen.finish;
  }
} catch (error) {
  seen.error = error.constructor.name;
}
console.log(JSON.stringify(seen));
