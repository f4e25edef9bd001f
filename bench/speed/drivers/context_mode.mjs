// context-mode: its store of tool outputs, without the server in front of it: indexes each output, then searches.
// Arguments: the folder in which the package is installed, the messages as JSON lines, the queries as JSON.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [place, source, wanted] = process.argv.slice(2);
const module = join(place, "node_modules", "context-mode", "build", "store.js");
const { ContentStore } = await import(pathToFileURL(module).href);

const messages = readFileSync(source, "utf-8").split("\n").map((line) => JSON.parse(line));
const queries = JSON.parse(readFileSync(wanted, "utf-8"));
const folder = mkdtempSync(join(tmpdir(), "context-mode-"));
const store = new ContentStore(join(folder, "store.db"));

const begun = performance.now();
for (const message of messages.slice(0, -2)) {
  if (message.role === "tool") store.indexPlainText(message.content, message.tool_call_id);
}
const indexed = performance.now() - begun;

const searches = queries.map((query) => {
  const started = performance.now();
  store.searchWithFallback(query, 10);
  return performance.now() - started;
});
searches.sort((first, second) => first - second);
store.close();
rmSync(folder, { recursive: true });
console.log(
  JSON.stringify({
    "store and index the conversation: outputs only": indexed,
    "search it, median": searches[Math.floor(searches.length / 2)],
  }),
);
