// What is different between two texts, line by line; JSON is laid out first.

import { h } from "./dom.js";

/** Longer texts are not compared. */
const LINES_MAX = 400;

function lines(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2).split("\n"); } catch { return text.split("\n"); }
}

/** Lines of both in order: [mark, line], the longest common part kept. */
export function compare(before, after) {
  const [a, b] = [lines(before), lines(after)];
  if (a.length > LINES_MAX || b.length > LINES_MAX) return null;
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push([" ", a[i]]); i += 1; j += 1; }
    else if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) { out.push(["-", a[i]]); i += 1; }
    else { out.push(["+", b[j]]); j += 1; }
  }
  return out;
}

/** What has changed, with a title; nothing if the texts are too long. */
export function changes(before, after, title) {
  const found = compare(before, after);
  if (!found) return "";
  const kind = { "+": "div.added", "-": "div.removed", " ": "div" };
  return h("section.changes", h("h3", title), h("div.diff", found.map(([mark, line]) => h(kind[mark], `${mark} ${line}`))));
}
