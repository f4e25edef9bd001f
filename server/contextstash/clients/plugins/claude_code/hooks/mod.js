// Answers Claude Code's compactions with contextstash's view of the session: no request to the model.
// What goes wrong here leaves the client as it is without us: it compacts itself, and the hooks give the hand-off.

const SECONDS = 10 // how long the client waits for us before it compacts itself

/** What the program returns for a request; throws if it fails, or takes longer. */
const ask = async ($, request) => {
  const { CLAUDE_PLUGIN_ROOT: root } = await $.process.hookEnv()
  if (!root) throw new Error('the plugin does not know its own folder')
  const program = `${root}/bin/contextstash`
  const done = await $.process.run([program, 'window', 'claude-code'], {
    cwd: root, stdin: JSON.stringify(request), timeoutMs: SECONDS * 1000,
  }).catch((error) => {
    throw /still running/.test(error?.message) ? new Error(`no answer in ${SECONDS} seconds`) : error
  })
  if (done.exitCode !== 0 || done.isStdoutTruncated) throw new Error(done.stderr.trim() || `exit code ${done.exitCode}`)
  return JSON.parse(done.stdout)
}

/** The client's messages as the program takes them. */
const listed = (messages) => messages.map((m) => ({
  id: m.handle, role: m.role, text: m.text,
  calls: (m.toolUses ?? []).map((u) => ({ id: u.tool_use_id, tool: u.tool, input: u.input })),
  results: (m.toolResults ?? []).map((r) => ({ id: r.tool_use_id, text: r.text, error: r.isError === true })),
}))

/** A message of the window. Only a prompt keeps its handle, and with it its images: a reply's would bring back reasoning
 * that is bound to the messages before it, and a result's the messages themselves as soon as the session is resumed. */
const shown = (part, messages) => {
  if (part.at === undefined) return { role: part.role, text: part.text, toolUses: [] }
  const m = messages[part.at]
  if (m.role === 'user' && !m.toolResults?.length) return m
  const toolUses = (m.toolUses ?? []).map((u) => ({ tool_use_id: u.tool_use_id, tool: u.tool, input: u.input }))
  const toolResults = (m.toolResults ?? []).map((r) => ({
    tool_use_id: r.tool_use_id, text: part.results?.[r.tool_use_id] ?? r.text, isError: r.isError === true,
  }))
  return { role: m.role, text: m.text, toolUses, ...(toolResults.length ? { toolResults } : {}) }
}

/** The outputs that a window shows as placeholders, each once: its handle and its call. */
const placeholders = (window) => [...new Set(
  window.messages.flatMap((part) => Object.values(part.results ?? {})).map((text) => {
    const call = text.replace(/^\[contextstash: archived output of /, '').split('\n')[0].replace(/(.{89}).+/, '$1…')
    return `${text.match(/out_\w{8,}/g)?.at(-1) ?? ''} ${call}`
  }),
)]

const OURS = /contextstash__(prune_tool_outputs|compact_session|restore_outputs|configure_session)$/
const HANDLE = /^out_\w+$/
const thousands = (tokens) => `${Math.round(tokens / 1000)}k`

/** Compact as soon as the session is idle: by the user's command, as $.session.compact() skips our own hook. */
const compactSoon = ($) => {
  $.clock.after(0, () => $.command.run({ command: 'compact' }).catch((error) => $.ui.log(`${error}`)))
}

export const register = (on, options) => {
  const size = Number(options?.window ?? 0)
  let last // the window of the newest compaction by us
  let asked // what the next compaction is for: 'compact', or 'view' after one of our tools changed the session's view
  let interactive = false

  on('session.compact', async ($, e, next) => {
    // Ahead of time there is nothing to do: ours takes no request, and is made from what is there when it is needed.
    if (e.trigger === 'precompute') return { skip: 'contextstash compacts when it is needed.' }
    const what = asked ?? 'compact'
    asked = undefined
    try {
      const { transcriptPath } = await $.session.info()
      const window = await ask($, {
        do: what, transcript: transcriptPath, agent: e.agentId, messages: listed(e.messages),
      })
      const messages = window.messages.map((part) => shown(part, e.messages))
      if (!messages.length || messages.some((m) => !m.role)) throw new Error('an answer of an unknown shape')
      if (e.agentId === undefined) last = window
      $.ui.log(window.line)
      return { messages, tokensBefore: window.tokens_before, tokensAfter: window.tokens_after }
    } catch (error) {
      const why = error instanceof Error ? error.message : `${error}`
      const told = why.includes('is not a function') ? 'it needs Claude Code 2.1.326' : why
      $.ui.log(`did not compact, Claude Code does: ${told}`)
      return next(e)
    }
  })

  // The right moment: between turns, above the window that the user set.
  on('turn.complete', async ($, e, next) => {
    const done = await next(e)
    if (!interactive || e.agentId !== undefined || e.reason !== 'answer') return done
    const { context } = await $.session.usage()
    if (asked || (size && (context.tokens ?? 0) > size)) compactSoon($)
    return done
  })

  // A large history whose cache has expired is written again anyway: smaller.
  on('classic.SessionStart', { source: 'resume' }, async ($, e, next) => {
    const large = size && (e.context_tokens ?? 0) > size / 2
    if (options?.resumed && large && e.prompt_cache_likely_expired) compactSoon($)
    return next(e)
  })

  on('classic.SessionStart', { source: 'clear' }, async ($, e, next) => {
    last = undefined
    return next(e)
  })

  // What our tools change in the session's view, the client's own window shows after the turn.
  on('tool.call', { tool: OURS }, async ($, e, next) => {
    const done = await next(e)
    if (!interactive || e.agentId !== undefined || done.deny !== undefined || done.isError || e.dry_run) return done
    asked = e.tool.endsWith('compact_session') ? 'compact' : 'view'
    const says = 'With the contextstash plugin this also changes your own window: as soon as this turn has ended.'
    return { ...done, context: [...(done.context ?? []), says] }
  })

  on('session.start', async ($, e, next) => {
    interactive = e.isInteractive
    await $.command.register({
      name: 'left', argumentHint: '[out_…]', description: 'What left the window, or bring an output back',
    })
    return next(e)
  })

  on('command.run', { command: 'left' }, async ($, e) => {
    const handle = e.args.trim()
    if (HANDLE.test(handle)) {
      const { CLAUDE_PLUGIN_ROOT: root } = await $.process.hookEnv()
      const done = await $.process.run([`${root}/bin/contextstash`, 'show', handle], { cwd: root })
      if (done.exitCode !== 0) return { text: done.stderr.trim() }
      return { text: `${handle} is back in the window.`, context: [`Archived output ${handle}:\n${done.stdout}`] }
    }
    if (!last) return { text: 'Nothing has left this window by contextstash yet.' }
    const how = 'Everything else that left is found by search: ask for it. /left out_… brings an output back.'
    return { text: [last.line, ...placeholders(last), how].join('\n') }
  })

  on('ui.render', { component: 'AbovePrompt' }, async ($, e, next) => {
    if (!last || e.props.hasSurvey || e.props.isWorking) return next(e)
    const { Text } = $.ui.resolve(e)
    const { context } = await $.session.usage()
    const full = context.tokens ? `${thousands(context.tokens)} of ${thousands(size || context.window)} · ` : ''
    return h(Text, { dimColor: true }, `contextstash ${full}${last.line.split(', all')[0]} · /left shows them`)
  })

  // Our hand-off is for the model: a line for the user, all of it in the expanded transcript.
  on('ui.render', { component: 'UserMessage' }, async ($, e, next) => {
    if (e.props.isExpanded || !e.props.text.startsWith('[contextstash: hand-off')) return next(e)
    const { Text } = $.ui.resolve(e)
    return h(Text, { dimColor: true }, `contextstash: hand-off of ${e.props.text.split('\n').length} lines (ctrl+o)`)
  })
}
