// Answers pi's compactions with contextstash's view of the session: no request to the model.
// What goes wrong here leaves pi as it is without us: it compacts itself.
import { execFile } from "node:child_process"

// The program by its absolute path: `contextstash install pi` writes both lines.
const PROGRAM = ["contextstash"]
const OPTIONS = []
const OF_SESSION = /contextstash__(?!list_sessions|get_archived_output|delete_session)/ // tools that take its id
const SECONDS = 10 // how long pi waits for us before it compacts itself

/** What the program returns for a request; throws if it fails, or takes longer. */
const ask = (request, signal) => new Promise((resolve, reject) => {
  const [file, ...given] = PROGRAM
  const done = (error, stdout, stderr) => (error ? reject(new Error(stderr?.trim() || error.message)) : resolve(stdout))
  // Not in the project's folder, from which nothing is loaded.
  const child = execFile(file, [...given, "window", "pi", ...OPTIONS], { cwd: "/", maxBuffer: 2 ** 26, signal }, done)
  const late = () => child.kill("SIGKILL") && reject(new Error(`no answer in ${SECONDS} seconds`))
  const timer = setTimeout(late, SECONDS * 1000)
  child.on("exit", () => clearTimeout(timer))
  child.stdin?.on("error", () => {}) // the program ended before it read all: its exit code says so
  child.stdin?.end(JSON.stringify(request))
}).then(JSON.parse)

const textOf = (content) => {
  if (typeof content === "string") return content
  return (content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("\n")
}

/** Whether an entry is a message to the model; a compaction before the newest one is none. */
const isShown = (entry, place) => (entry.type === "message" && entry.message.role !== "system")
  || /^(custom_message|branch_summary)$/.test(entry.type) || (entry.type === "compaction" && place === 0)

/** An entry as the program takes it. */
const listed = (entry) => {
  const { id, message } = entry
  if (entry.type !== "message") return { id, role: "user", text: entry.summary ?? textOf(entry.content) }
  if (message.role === "assistant") {
    const calls = message.content.filter((block) => block.type === "toolCall")
    const called = calls.map((call) => ({ id: call.id, tool: call.name, input: call.arguments }))
    return { id, role: "assistant", text: textOf(message.content), calls: called }
  }
  if (message.role === "toolResult") {
    const { toolCallId, content, isError } = message
    return { id, role: "user", text: "", results: [{ id: toolCallId, text: textOf(content), error: isError }] }
  }
  return { id, role: "user", text: textOf(message.content ?? message.output) || "[a file]" }
}

export default function (pi) {
  pi.on("session_before_compact", async (event, ctx) => {
    try {
      const entries = ctx.sessionManager.buildContextEntries().filter(isShown)
      const transcript = ctx.sessionManager.getSessionFile()
      const messages = entries.map(listed)
      const window = await ask({ do: "compact", transcript, messages }, event.signal)
      const summary = window.messages.filter((part) => part.at === undefined).map((part) => part.text).join("\n\n")
      const kept = window.messages.filter((part) => part.at !== undefined)
      if (!summary) throw new Error("an answer of an unknown shape")
      ctx.ui.notify(`contextstash: ${window.line}`, "info")
      return {
        compaction: {
          summary,
          firstKeptEntryId: entries[kept[0]?.at]?.id ?? event.preparation.firstKeptEntryId,
          tokensBefore: event.preparation.tokensBefore,
          details: { contextstash: Object.assign({}, ...kept.map((part) => part.results)) },
        },
      }
    } catch (error) {
      ctx.ui.notify(`contextstash did not compact, pi does: ${error.message}`, "warning")
    }
  })

  // Two windows may work in one folder, and a call does not say which one it comes from.
  pi.on("tool_call", async ({ toolName, input }, ctx) => {
    const transcript = ctx.sessionManager.getSessionFile()
    if (!OF_SESSION.test(toolName) || input.session_id || !transcript) return
    const found = await ask({ do: "record", transcript }).catch(() => undefined)
    if (found) input.session_id = found.session_id
  })

  // Older outputs that stay below the hand-off are placeholders, the same in each request until the next compaction.
  pi.on("context", (event, ctx) => {
    const last = ctx.sessionManager.getBranch().findLast((entry) => entry.type === "compaction")
    const texts = last?.details?.contextstash
    if (!texts || !Object.keys(texts).length) return
    return {
      messages: event.messages.map((message) => {
        const text = message.role === "toolResult" ? texts[message.toolCallId] : undefined
        return text === undefined ? message : { ...message, content: [{ type: "text", text }] }
      }),
    }
  })
}
