// The keys that the footer of each page lists. The pages work without this script.
"use strict";
(() => {
  const items = () => [...document.querySelectorAll("article, tbody a.row")];
  let current = -1;

  function go(step) {
    const all = items();
    if (!all.length) return;
    current = Math.max(0, Math.min(all.length - 1, current + step));
    all[current].focus({ preventScroll: true });
    all[current].scrollIntoView({ block: "start" });
  }

  function follow(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
  }

  const keys = {
    "/": () => document.getElementById("q").focus(),
    j: () => go(1),
    k: () => go(-1),
    n: () => follow('a[rel="next"]'),
    p: () => follow('a[rel="prev"]'),
    u: () => follow('a[rel="up"], .crumbs a:last-child'),
    m: () => follow('a.button[href$="/messages"]'),
    Enter: () => {
      const link = document.activeElement.matches("article") && document.activeElement.querySelector("a");
      if (link) link.click();
    },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select, button")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = keys[event.key];
    if (action && !(event.key === "Enter" && event.target.matches("a"))) {
      event.preventDefault();
      action();
    }
  });
})();
