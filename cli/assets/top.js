// Replaces the view each second. One request at a time, none while the page is hidden or paused,
// and ever fewer while nobody answers. What has not changed stays as it is, so that whoever reads,
// selects or scrolls is not disturbed.
"use strict";
(() => {
  const PERIOD = 1000;
  const PATIENCE = 5000;
  const LONGEST = 10000;
  const view = document.getElementById("view");
  const state = document.getElementById("state");
  const button = document.getElementById("pause");
  let paused = false;
  let wait = PERIOD;
  let timer = 0;

  /** Makes `old` what `fresh` is, in place. */
  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(document.importNode(fresh, true));
    } else if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else {
      for (const { name } of [...old.attributes]) {
        if (!fresh.hasAttribute(name)) old.removeAttribute(name);
      }
      for (const { name, value } of fresh.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      morphChildren(old, fresh);
    }
  }

  function morphChildren(old, fresh) {
    const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
    after.forEach((node, place) => {
      if (place < before.length) morph(before[place], node);
      else old.append(document.importNode(node, true));
    });
    before.slice(after.length).forEach((node) => node.remove());
  }

  function tell(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  function later() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(look, wait);
  }

  async function look() {
    try {
      const answer = await fetch("/view", { signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (paused) return;
      morphChildren(view, new DOMParser().parseFromString(text, "text/html").body);
      wait = PERIOD;
      tell("live");
    } catch {
      wait = Math.min(2 * wait, LONGEST);
      tell("no answer: what is shown is old");
    }
    later();
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    tell(paused ? "paused" : "live");
    later();
  });
  document.addEventListener("visibilitychange", later);
  tell("live");
  later();
})();
