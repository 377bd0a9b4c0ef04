"use strict";

// Light or dark, against what the system says.
(() => {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  button.hidden = false;
  name();
})();

// Tables are sorted by a click on a column's head; what is empty stays last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const key = (row, column) => row.cells[column].dataset.key;
  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  const sort = (column) => {
    const down = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows];
    const full = rows.filter((row) => key(row, column) !== "");
    const empty = rows.filter((row) => key(row, column) === "");
    full.sort((a, b) => (down ? -1 : 1) * compare(key(a, column), key(b, column)));
    body.append(...full, ...empty);
  };
  const first = new ResizeObserver(() => table.style.setProperty("--first", `${heads[0].offsetWidth}px`));
  first.observe(heads[0]);  // the second column stays beside the first
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(column));
    head.append(button);
  });
}

// A panel shows the numbers of its curves at the pointer, at a tap, or by the arrow keys.
for (const panel of document.querySelectorAll(".panel")) {
  const drawing = panel.querySelector("svg");
  const cursor = drawing.querySelector(".cursor");
  const readout = panel.querySelector(".readout");
  const data = JSON.parse(panel.querySelector("script").textContent);
  const steps = [...new Set(data.lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  let at = steps.length - 1;

  const number = (value, like = value) => {
    const size = Math.abs(like);
    const places = data.interval ? 2 : size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
    const tiny = !data.interval && size > 0 && size < 0.01;
    const digits = tiny ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: places, maximumFractionDigits: places };
    return value.toLocaleString("en-US", digits).replace("-", "−");
  };
  const shown = (line, step) => {
    const last = line.steps.length - 1;
    if (step < line.steps[0] || step > line.steps[last]) return null;
    let i = line.steps.findIndex((x) => x > step);
    i = (i < 0 ? last + 1 : i) - 1;
    const band = data.interval
      ? `(${number(line.low[i])} to ${number(line.high[i])})`
      : line.seeds > 1 ? `± ${number(line.high[i] - line.mean[i], line.mean[i])}` : "";
    return { line, mean: line.mean[i], text: `${number(line.mean[i])} ${band}` };
  };
  const part = (name, text, kind) => {
    const element = document.createElement(name);
    element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  const show = () => {
    const step = steps[at];
    const values = data.lines.map((line) => shown(line, step)).filter(Boolean).sort((a, b) => b.mean - a.mean);
    const x = data.left + ((step - data.from) / (data.to - data.from)) * (data.right - data.left);
    cursor.setAttribute("transform", `translate(${x})`);
    panel.classList.add("reading");
    readout.replaceChildren(part("p", `${number(step)} ${data.name}`));
    for (const { line, text } of values) {
      const swatch = panel.closest("figure").querySelector(`.swatch[data-style="${line.style}"]`);
      readout.append(swatch.cloneNode(true), part("span", line.label), part("span", text, "value"));
    }
    readout.classList.toggle("at-left", x > data.width / 2);
    readout.hidden = false;
    drawing.setAttribute("aria-valuenow", step);
    const said = values.map(({ line, text }) => `${line.label} ${text}`).join("; ");
    drawing.setAttribute("aria-valuetext", `${number(step)} ${data.name}: ${said}`);
  };
  const hide = () => {
    readout.hidden = true;
    panel.classList.remove("reading");
  };
  const follow = (event) => {
    const box = drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * data.width;
    const step = data.from + ((x - data.left) / (data.right - data.left)) * (data.to - data.from);
    at = steps.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(steps[best] - step) ? i : best), 0);
    show();
  };

  drawing.setAttribute("tabindex", "0");
  drawing.setAttribute("role", "slider");
  drawing.setAttribute("aria-valuemin", steps[0]);
  drawing.setAttribute("aria-valuemax", steps[steps.length - 1]);
  drawing.setAttribute("aria-valuenow", steps[at]);
  drawing.addEventListener("pointermove", follow);
  drawing.addEventListener("pointerdown", follow);
  drawing.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  drawing.addEventListener("focus", () => { if (drawing.matches(":focus-visible")) show(); });
  drawing.addEventListener("blur", hide);
  drawing.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(steps.length / 10));
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    at = Math.min(steps.length - 1, Math.max(0, at + moves[event.key]));
    show();
  });
  document.addEventListener("pointerdown", (event) => { if (!panel.contains(event.target)) hide(); });
}

// On paper, nothing is folded away.
{
  const folded = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      folded.push(details);
      details.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const details of folded.splice(0)) details.open = false;
  });
}
