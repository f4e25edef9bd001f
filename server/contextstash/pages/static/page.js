// Keys, the chart's cursor, and updates while a session runs. The pages work without this script.
"use strict";
(() => {
  // Keys: the footer of each page lists them.
  function go(step) {
    const all = [...document.querySelectorAll(".line > details > summary, .hit .handle, tbody a.row")];
    const current = all.indexOf(document.activeElement);
    const next = all[Math.max(0, Math.min(all.length - 1, current + step))];
    if (next) next.focus();
  }

  function follow(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
  }

  function unfold() {
    const place = document.activeElement.closest("article") || document.querySelector("main");
    const folds = [...place.querySelectorAll("details")];
    const open = folds.some((fold) => !fold.open);
    for (const fold of folds) fold.open = open;
  }

  const keys = {
    "/": () => document.getElementById("q").focus(),
    j: () => go(1),
    k: () => go(-1),
    n: () => follow('a[rel="next"]'),
    p: () => follow('a[rel="prev"]'),
    u: () => follow('a[rel="up"], .crumbs a:last-child'),
    m: () => follow("a.to-messages"),
    o: unfold,
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select, button")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = keys[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });

  // The chart: what the window held at the cursor, and what changed there.
  const number = (value) => Number(value).toLocaleString("en");

  function line(name, value) {
    const made = document.createElement("div");
    made.append(Object.assign(document.createElement("span"), { textContent: name }),
      Object.assign(document.createElement("span"), { textContent: value, className: "n" }));
    return made;
  }

  function tipOf(chart, data, index) {
    const tip = chart.querySelector(".tip") || chart.appendChild(document.createElement("div"));
    const [seq, ...tokens] = data.points[index];
    const before = index ? data.points[index - 1].slice(1).reduce((sum, each) => sum + each, 0) : 0;
    const total = tokens.reduce((sum, each) => sum + each, 0);
    const changed = total - before;
    tip.className = "tip";
    tip.setAttribute("role", "status");
    tip.replaceChildren(
      Object.assign(document.createElement("b"), { textContent: `${number(total)} tokens` }),
      line("after message", number(seq)), line("since the point before", (changed > 0 ? "+" : "") + number(changed)),
      ...data.names.map((name, place) => line(name, number(tokens[place]))).filter((_, place) => tokens[place]));
    const next = index + 1 < data.points.length ? data.points[index + 1][0] : Infinity;
    for (const [at, kind, from, to] of data.changes) {
      if (at === seq || (at > seq && at < next)) {
        tip.append(Object.assign(document.createElement("span"),
          { className: "change", textContent: `${kind}: ${number(from)} → ${number(to)}` }));
      }
    }
    return tip;
  }

  function place(chart, data, index) {
    const last = Math.max(1, data.points.at(-1)[0]);
    const share = data.points[index][0] / last;
    chart.classList.add("on");
    const cursor = chart.querySelector(".cursor");
    const x = share * chart.querySelector("svg").viewBox.baseVal.width;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const tip = tipOf(chart, data, index);
    const left = share * chart.clientWidth;
    tip.style.left = `${Math.max(0, left + 14 + tip.offsetWidth > chart.clientWidth ? left - tip.offsetWidth - 14 : left + 14)}px`;
    chart.dataset.index = index;
  }

  function leave(chart) {
    chart.classList.remove("on");
    const tip = chart.querySelector(".tip");
    if (tip) tip.remove();
  }

  function readable(chart) {
    const data = JSON.parse(chart.dataset.chart);
    const last = Math.max(1, data.points.at(-1)[0]);
    const nearest = (event) => {
      const box = chart.getBoundingClientRect();
      const seq = (last * (event.clientX - box.left)) / box.width;
      let best = 0;
      data.points.forEach((point, index) => {
        if (Math.abs(point[0] - seq) < Math.abs(data.points[best][0] - seq)) best = index;
      });
      return best;
    };
    const open = () => {
      const [seq] = data.points[Number(chart.dataset.index)];
      location.href = `${chart.dataset.messages}?first=${Math.max(0, seq - 10)}`;
    };
    chart.addEventListener("pointermove", (event) => place(chart, data, nearest(event)));
    chart.addEventListener("pointerleave", () => { if (document.activeElement !== chart) leave(chart); });
    chart.addEventListener("click", (event) => { place(chart, data, nearest(event)); if (event.detail > 1) open(); });
    chart.addEventListener("blur", () => leave(chart));
    chart.addEventListener("focus", () => place(chart, data, Number(chart.dataset.index || data.points.length - 1)));
    chart.addEventListener("keydown", (event) => {
      const last = data.points.length - 1;
      const index = Number(chart.dataset.index || 0);
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        place(chart, data, Math.max(0, Math.min(last, to)));
      } else if (event.key === "Enter") open();
    });
  }
  document.querySelectorAll("[data-chart]").forEach(readable);

  // Updates: a small text says whether anything changed; only then the page is read, and only its changed parts are
  // replaced. What a reader has opened or is in stays.
  const every = 3000; // milliseconds: a guess at what feels immediate and costs nothing
  let mark = document.body.dataset.mark;
  let waiting = 0;

  const isInUse = (part) => part.contains(document.activeElement) || part.querySelector("details[open], .canvas.on") !== null;

  function take(fresh) {
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.outerHTML === part.outerHTML || isInUse(part)) continue;
      part.replaceWith(other);
      other.querySelectorAll("[data-chart]").forEach(readable);
    }
    const list = document.querySelector("[data-list]");
    const other = list && fresh.getElementById(list.id);
    if (!other) return;
    for (const item of [...other.children]) {
      const known = item.id && document.getElementById(item.id);
      if (!known) list.append(item);
      else if (known.outerHTML !== item.outerHTML && !isInUse(known)) known.replaceWith(item);
    }
  }

  async function look() {
    const answer = await fetch(document.body.dataset.markAt);
    if (!answer.ok) throw new Error(String(answer.status));
    const now = await answer.text();
    if (now === mark && !document.querySelector("[data-waiting]")) return;
    const page = await fetch(location.href);
    if (!page.ok) throw new Error(String(page.status));
    take(new DOMParser().parseFromString(await page.text(), "text/html"));
    mark = now;
  }

  function state(text) {
    const live = document.getElementById("live");
    live.classList.toggle("on", text === "live");
    if (live.textContent !== text) live.textContent = text;
  }

  async function watch() {
    clearTimeout(waiting);
    if (document.hidden) return;
    try {
      await look();
      state("live");
    } catch {
      state("the server does not answer");
    }
    waiting = setTimeout(watch, every);
  }

  if (mark !== undefined && document.getElementById("live")) {
    document.addEventListener("visibilitychange", watch);
    watch();
  }
})();
