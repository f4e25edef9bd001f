// A session's window over time as a picture: for the browser pages, and for the app in a chat.
const GROUPS = {
  system: ["system"], summaries: ["summaries"], user: ["user", "images"],
  assistant: ["assistant", "thinking", "tool_calls"], tool_results: ["tool_results", "archived"],
  unrecorded: ["unrecorded"],
}; // the areas from the bottom up, and the parts of a window in each
const MAX_HEADROOM = 5; // times the areas' height that the usable window may have: beyond it they would be too low to read
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

const number = (value) => Number(value).toLocaleString("en");
const words = (text) => (text === "unrecorded" ? "unlogged text" : String(text).replaceAll("_", " "));
const color = (part) => `var(--${CSS.escape(part)}, var(--unrecorded))`;

// Text is only ever set as text: what a session says of itself is not to be trusted.
function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "style") Object.assign(made.style, value); else made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}
const element = (name, attributes, ...children) => filled(document.createElement(name), attributes, children);
const drawing = (name, attributes, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

const grouped = ({ parts }) => Object.fromEntries(Object.entries(GROUPS)
  .map(([group, names]) => [group, names.reduce((sum, name) => sum + (parts[name] || 0), 0)]));

function chart(timeline) {
  const width = 640, height = 140;
  const last = Math.max(1, timeline.points.at(-1).seq);
  const sums = timeline.points.map(grouped);
  const highest = Math.max(1, ...sums.map((groups) => Object.values(groups).reduce((a, b) => a + b, 0)));
  const top = timeline.usable <= MAX_HEADROOM * highest ? Math.max(timeline.usable, highest) : highest;
  const place = (index, tokens) => `${((width * timeline.points[index].seq) / last).toFixed(1)},`
    + (height - (height * tokens) / top).toFixed(1);
  const picture = drawing("svg", { viewBox: `-6 -6 ${width + 12} ${height + 12}`, role: "img", class: "chart",
    "aria-label": "Tokens in the window over time" });
  let below = sums.map(() => 0);
  for (const group of Object.keys(GROUPS)) {
    const above = below.map((low, index) => low + sums[index][group]);
    const upper = above.map((tokens, index) => place(index, tokens));
    const lower = below.map((tokens, index) => place(index, tokens)).reverse();
    picture.append(drawing("polygon", { points: [...upper, ...lower].join(" "), style: { fill: color(group) } },
      drawing("title", {}, words(group))));
    below = above;
  }
  if (timeline.usable <= top) {
    const y = height - (height * timeline.usable) / top;
    picture.append(drawing("line", { class: "usable", x1: 0, x2: width, y1: y, y2: y }));
  }
  for (const change of timeline.changes) {
    const x = (width * Math.min(change.seq, last)) / last;
    picture.append(drawing("line", { class: `mark ${change.kind}`, x1: x, x2: x, y1: 0, y2: height },
      drawing("title", {}, `${change.kind} at message ${number(change.seq)}`)));
  }
  return picture;
}

// The pages: a figure with its timeline gets the picture, and what each area holds at the end.
for (const figure of document.querySelectorAll("[data-timeline]")) {
  const timeline = JSON.parse(figure.dataset.timeline);
  const keys = Object.entries(grouped(timeline.points.at(-1))).filter(([, tokens]) => tokens).reverse();
  figure.append(chart(timeline), element("figcaption", {},
    ...keys.map(([group, tokens]) => element("span", { class: "key" },
      element("i", { style: { background: color(group) } }), `${words(group)} `, element("b", {}, number(tokens)))),
    element("span", { class: "key" }, element("i", { class: "line" }), "usable window ", element("b", {}, number(timeline.usable)))));
}
