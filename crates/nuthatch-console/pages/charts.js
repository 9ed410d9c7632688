// Small charts: lines in SVG, without a library.

import { clear, h, span, visible } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [320, 64];

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** A round number that is not below the largest value. */
function ceiling(max, isBytes) {
  if (max <= 0) return 1;
  const unit = isBytes ? 1024 ** Math.max(0, Math.floor(Math.log2(max) / 10)) : 1;
  const power = 10 ** Math.floor(Math.log10(max / unit));
  return [1, 2, 5, 10].map((n) => n * power * unit).find((n) => n >= max) ?? max;
}

/** `lines`: [{ name, values }], the oldest value first; `ages` in ms tell where each stands in the hour. */
export function chart({ title, lines, ages, hour, show, isBytes }) {
  const max = ceiling(Math.max(0, ...lines.flatMap((line) => line.values)), isBytes);
  const x = (age) => WIDTH - (Math.min(age, hour) / hour) * WIDTH;
  const y = (value) => HEIGHT - 2 - (value / max) * (HEIGHT - 6);
  const path = (values) => values.map((value, i) => `${i ? "L" : "M"}${x(ages[i]).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const words = lines.map(({ name, values }) => `${name ? `${name} ` : ""}now ${show(values.at(-1))}, at most ${show(Math.max(...values))}`).join("; ");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": visible(`${title}: ${words}`) },
    svg("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }),
    svg("line", { class: "base", x1: 0, x2: WIDTH, y1: y(max), y2: y(max) }),
    ...lines.map(({ values }, i) => svg("path", { class: `line-${i}`, d: path(values) })));
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, x1: -9, x2: -9 });
  picture.append(cursor);
  const told = h("small.chart-now");
  const tell = (at) => clear(told, lines.map(({ name, values }, i) => h(`span.key-${i}`, name ? `${name} ` : "", h("b", show(values.at(at))))), at !== -1 && h("span.dim", `${span(ages.at(at))} ago`));
  tell(-1);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = ((box.right - event.clientX) / box.width) * hour;
    let best = 0;
    ages.forEach((age, i) => { if (Math.abs(age - wanted) < Math.abs(ages[best] - wanted)) best = i; });
    cursor.setAttribute("x1", x(ages[best]));
    cursor.setAttribute("x2", x(ages[best]));
    tell(best);
  });
  picture.addEventListener("pointerleave", () => { cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); tell(-1); });
  return h("figure.chart", h("figcaption", h("span", title), told), picture, h("div.chart-axis", h("small", "an hour ago"), h("small", `scale ${show(max)}`), h("small", "now")));
}
