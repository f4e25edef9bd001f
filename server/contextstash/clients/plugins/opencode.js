// Makes OpenCode's window contextstash's view of the session: above a size the older messages leave each request, for a
// hand-off, without a request to the model. What goes wrong here leaves OpenCode as it is without us.
import { execFile } from "node:child_process"
import { homedir } from "node:os"
import { join, resolve } from "node:path"

// The program by its absolute path: `contextstash install opencode` writes both lines.
const PROGRAM = ["contextstash"]
const OPTIONS = []
const SECONDS = 10 // how long a request waits for us
const PAUSE_SECONDS = 60 // after a failure no request waits so long
const LARGE = 100_000 // tokens of a window that is compacted, or so much of what the model takes, if that is less:
const SHARE = 0.7 // OpenCode asks the model for a summary as soon as the window is full
const OF_SESSION = /contextstash_(?!list_sessions|get_archived_output|delete_session)/ // tools that take its id
const OURS = /contextstash_(prune_tool_outputs|compact_session|restore_outputs|configure_session)$/

/** What the program returns for a request; throws if it fails, or takes longer. */
const ask = (request) => new Promise((settle, reject) => {
  const [file, ...given] = PROGRAM
  const done = (error, stdout, stderr) => (error ? reject(new Error(stderr?.trim() || error.message)) : settle(stdout))
  // Not in the project's folder, from which nothing is loaded.
  const child = execFile(file, [...given, "window", "opencode", ...OPTIONS], { cwd: "/", maxBuffer: 2 ** 26 }, done)
  const late = () => child.kill("SIGKILL") && reject(new Error(`no answer in ${SECONDS} seconds`))
  const timer = setTimeout(late, SECONDS * 1000)
  child.on("exit", () => clearTimeout(timer))
  child.stdin?.on("error", () => {}) // the program ended before it read all: its exit code says so
  child.stdin?.end(JSON.stringify(request))
}).then(JSON.parse)

const DATA = process.env.XDG_DATA_HOME || join(homedir(), ".local", "share")
const DATABASE = resolve(DATA, "opencode", process.env.OPENCODE_DB || "opencode.db")

/** A message as the program takes it: a reply, and the results of its calls, which OpenCode keeps in one. */
const listed = ({ info, parts }) => {
  const text = parts.filter((part) => part.type === "text" && !part.ignored).map((part) => part.text).join("\n")
  if (info.role === "user") return [{ id: info.id, role: "user", text: text || "[a file]" }]
  const used = parts.filter((part) => part.type === "tool")
  const calls = used.map((part) => ({ id: part.callID, tool: part.tool, input: part.state.input }))
  const outputs = ({ callID: id, state }) => ({ id, text: state.output ?? state.error, error: Boolean(state.error) })
  const reply = { id: info.id, role: "assistant", text, calls }
  return used.length ? [reply, { id: `${info.id}=`, role: "user", results: used.map(outputs) }] : [reply]
}

/** What a window shows, by OpenCode's own ids: it is applied to each later list, so that the prefix stays the same. */
const decided = (window, messages) => {
  const owner = messages.flatMap((message) => listed(message).map(() => message.info.id))
  const parts = window.messages.filter((part) => part.at !== undefined)
  const kept = new Set(parts.map((part) => owner[part.at]))
  const left = new Set(owner.filter((id) => !kept.has(id)))
  const ours = window.messages.filter((part) => part.at === undefined).map((part) => part.text)
  const texts = Object.assign({}, ...parts.map((part) => part.results))
  return { ours, kept, left, texts, until: messages.at(-1).info.id }
}

/** Outputs that became placeholders. */
const withTexts = (parts, texts) => parts.map((part) => (texts[part.callID] && part.state.status === "completed"
  ? { ...part, state: { ...part.state, output: texts[part.callID], attachments: [] } } : part))

const isOwnCompaction = ({ info, parts }) => info.summary === true || parts.some((part) => part.type === "compaction")

/** The list as the window shows it: our texts, which stand for OpenCode's own summary too, and what has not left. */
const shown = ({ ours, left, texts }, messages) => {
  const like = messages.findLast((message) => message.info.role === "user")?.info
  const told = (text, place) => ({ info: { ...like, id: `msg_contextstash${place}` }, parts: [{ type: "text", text }] })
  const first = like ? ours.map(told) : []
  const stays = messages.filter((each) => !left.has(each.info.id) && !(first.length && isOwnCompaction(each)))
  return [...first, ...stays.map((each) => ({ ...each, parts: withTexts(each.parts, texts) }))]
}

export const ContextStash = async ({ client }) => {
  const states = new Map() // by session: the window that was decided last
  const limits = new Map() // by session: the tokens above which it is compacted
  const summarized = new Set() // sessions of which OpenCode is making its own summary
  let failed = 0

  /** What to ask the program for before this request; undefined if the window stays as it was decided. */
  const wanted = (session, messages) => {
    const state = states.get(session)
    if (!state) return messages.length > 1 ? "view" : undefined
    const listed = messages.map((message) => message.info.id)
    if ([...state.kept].some((id) => !listed.includes(id))) return messages.some(isOwnCompaction) ? "compact" : "view"
    const later = messages.slice(listed.indexOf(state.until) + 1)
    const used = later.findLast(({ info }) => info.role === "assistant" && !info.summary)?.info.tokens
    const size = used ? used.input + used.output + used.cache.read + used.cache.write : 0
    return size > (limits.get(session) ?? LARGE) ? "compact" : state.asks
  }

  const decide = async (session, messages) => {
    const what = wanted(session, messages)
    if (!what || Date.now() - failed < PAUSE_SECONDS * 1000) return
    const window = await ask({ do: what, transcript: join(DATABASE, session), messages: messages.flatMap(listed) })
    states.set(session, decided(window, messages))
    const body = { message: `contextstash: ${window.line}`, variant: "info" }
    if (what === "compact") client.tui.showToast({ body }).catch(() => {})
  }

  return {
    "chat.params": async ({ sessionID, agent, model }) => {
      const taken = SHARE * (model.limit.context - Math.min(model.limit.output, 32_000)) // the rest is for the reply
      if (taken > 0 && agent !== "title") limits.set(sessionID, Math.min(LARGE, taken))
    },
    "experimental.session.compacting": async ({ sessionID }) => void summarized.add(sessionID),
    "experimental.chat.messages.transform": async (_, { messages }) => {
      const session = messages[0]?.info.sessionID
      try {
        if (!summarized.delete(session)) await decide(session, messages)
      } catch (error) {
        failed = Date.now()
        const message = `the window stays as it was: ${error.message}`
        client.app.log({ body: { service: "contextstash", level: "warn", message } }).catch(() => {})
      }
      const state = states.get(session)
      if (state) messages.splice(0, messages.length, ...shown(state, messages))
    },
    // Two windows may work in one folder, and a call does not say which one it comes from.
    "tool.execute.before": async ({ tool, sessionID }, { args }) => {
      if (!OF_SESSION.test(tool) || args.session_id) return
      const found = await ask({ do: "record", transcript: join(DATABASE, sessionID) }).catch(() => undefined)
      if (found) args.session_id = found.session_id
    },
    "tool.execute.after": async ({ tool, sessionID }) => {
      const state = states.get(sessionID)
      if (state && OURS.test(tool)) state.asks = tool.endsWith("compact_session") ? "compact" : "view"
    },
  }
}
