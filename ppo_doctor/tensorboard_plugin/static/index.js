// The tab: a list of runs that is polled while the tab is shown, and the report of one run in a sandboxed frame.
// Whatever a log says is put into the page as text, never as markup.
const POLL = 2000;
const SIGNS = { healthy: "✓", warning: "!", unhealthy: "✗", inconclusive: "?" };
const WORST_FIRST = ["unhealthy", "warning", "inconclusive", "healthy"];
const at = (name, query = {}) => `${new URL(name, import.meta.url)}?${new URLSearchParams(query)}`;

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const span = (seconds) => {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 2 * 86400) return `${Math.floor(seconds / 3600)} h`;
  return count(Math.floor(seconds / 86400), "day");
};

const status = make("p", { class: "status", role: "status" });
const notes = make("ul", { class: "notes" });
const filter = make("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", autocomplete: "off" });
const list = make("ul", { class: "runs-below" });
const title = make("h2", { class: "title" });
const fresh = make("button", { type: "button", class: "fresh", hidden: "" });
const words = make("p", { class: "words" });
const frames = make("div", { class: "frames" });
const rows = new Map();
let runs = [];
let opened = "";
let shown = "";
let dark = false;

function row(run) {
  const badge = make("span", { class: "badge" });
  const name = make("span", { class: "name" });
  const headline = make("span", { class: "headline" });
  const about = make("span", { class: "about" });
  const button = make("button", { type: "button" }, make("span", { class: "first" }, badge, name), headline, about);
  button.addEventListener("click", () => { opened = run.key; paint(); ask(); });
  return { item: make("li", {}, button), button, badge, name, headline, about };
}

function verdict(run) {
  if (run.verdict) return [`${SIGNS[run.verdict]} ${run.verdict}`, `badge ${run.verdict}`];
  if (run.state === "failed") return ["not judged", "badge failed"];
  return [run.judging ? "judging …" : run.state === "large" ? "large" : "waiting", "badge waiting"];
}

function about(run) {
  const step = run.step === null ? [] : [`step ${run.step.toLocaleString("en")}`];
  const when = run.writing ? `still being written, ${span(run.age)} ago` : `written ${span(run.age)} ago`;
  return [...step, when].join(" · ");
}

function paint() {
  const asked = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const items = [];
  for (const run of runs) {
    const key = run.key;
    if (!rows.has(key)) rows.set(key, row(run));
    const parts = rows.get(key);
    const [text, look] = verdict(run);
    say(parts.badge, text);
    parts.badge.className = look;
    say(parts.name, run.name);
    say(parts.headline, run.state === "large" ? "A large log, which is judged when you open it." : run.headline);
    say(parts.about, about(run));
    parts.button.classList.toggle("writing", run.writing);
    parts.button.setAttribute("aria-current", key === opened ? "true" : "false");
    const all = `${run.name} ${text} ${run.headline}`.toLowerCase();
    parts.item.hidden = !asked.every((word) => all.includes(word));
    items.push(parts.item);
  }
  const known = new Set(runs.map((run) => run.key));
  for (const key of [...rows.keys()]) if (!known.has(key)) rows.delete(key);
  // The order changes seldom, and a row that is moved loses the focus.
  if (items.length !== list.children.length || items.some((item, i) => list.children[i] !== item)) list.replaceChildren(...items);
  report(runs.find((run) => run.key === opened));
}

function report(run) {
  say(title, run ? run.name : "");
  const page = run && run.report ? JSON.stringify([run.key, run.report, dark]) : "";
  fresh.hidden = true;
  if (page && page !== shown) {
    const newer = shown && JSON.parse(shown)[0] === run.key && JSON.parse(shown)[2] === dark;
    // Who reads a report, or has unfolded parts of it, decides when a newer one replaces it.
    const read = frames.matches(":hover") || frames.contains(document.activeElement);
    if (newer && read) {
      say(fresh, `Show the report up to step ${run.step === null ? "?" : run.step.toLocaleString("en")}`);
      fresh.hidden = false;
    } else show(page, run);
  }
  const ours = shown && run && JSON.parse(shown)[0] === run.key;
  frames.hidden = !ours;
  say(words, ours ? "" : said(run));
  words.hidden = Boolean(ours);
}

function said(run) {
  if (run) return run.state === "failed" ? `This run could not be judged: ${run.headline}` : "This run is being judged …";
  return opened ? "This run is gone." : runs.length ? "Choose a run to see its report." : "";
}

function show(page, run) {
  if (shown && JSON.parse(shown)[0] !== run.key) frames.replaceChildren();
  shown = page;
  const theme = dark ? "dark" : "light";
  const frame = make("iframe", { sandbox: "allow-scripts", referrerpolicy: "no-referrer", class: "coming", title: `Report of ${run.name}` });
  frame.addEventListener("load", () => {
    if (page !== shown) return;
    for (const other of [...frames.children]) if (other !== frame) other.remove();
    frame.className = "";
  });
  frame.src = at("report", { run: run.key, theme, as: run.report });
  frames.append(frame);
}

function summary(answer) {
  const verdicts = WORST_FIRST.map((name) => [name, runs.filter((run) => run.verdict === name).length]);
  const parts = verdicts.filter(([, number]) => number).map(([name, number]) => `${number} ${name}`);
  const waiting = runs.filter((run) => run.state === "waiting").length;
  if (waiting) parts.push(`${waiting} to judge`);
  if (!answer.looked) return `Looking for runs … ${runs.length || ""}`;
  if (!runs.length) return "No run was found below the log directory.";
  return `${count(runs.length, "run")}: ${parts.join(", ")}`;
}

async function ask() {
  try {
    const response = await fetch(at("runs", { open: opened }));
    if (!response.ok) throw new Error(response.statusText);
    const answer = await response.json();
    runs = answer.runs;
    const said = [...answer.notes];
    if (answer.left_out) said.push(`${count(answer.left_out, "older run")} not listed: name a deeper --logdir, or use ppo-doctor fleet.`);
    if (notes.textContent !== said.join("")) notes.replaceChildren(...said.map((text) => make("li", {}, text)));
    if (!opened && answer.looked && runs.length === 1) opened = runs[0].key;
    say(status, summary(answer));
  } catch (error) {
    say(status, `TensorBoard does not answer: ${error.message}`);
  }
  paint();
}

function followTheme() {
  let above = null;
  try { above = window.parent.document.body; } catch { /* a page of another origin shows TensorBoard */ }
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    dark = above && above !== document.body ? above.classList.contains("dark-mode") : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    paint();
  };
  if (above) new MutationObserver(set).observe(above, { attributes: true, attributeFilter: ["class"] });
  system.addEventListener("change", set);
  set();
}

export function render() {
  document.documentElement.lang = "en";
  document.title = "PPO Doctor";
  for (const name of ["report.css", "index.css"]) document.head.append(make("link", { rel: "stylesheet", href: at(name) }));
  const head = make("div", { class: "over" }, title, fresh);
  document.body.append(
    make("nav", { "aria-label": "Runs" }, status, filter, notes, list),
    make("main", {}, head, words, frames),
  );
  filter.addEventListener("input", paint);
  fresh.addEventListener("click", () => {
    const run = runs.find((each) => each.key === opened);
    if (run && run.report) show(JSON.stringify([run.key, run.report, dark]), run);
    fresh.hidden = true;
  });
  followTheme();
  const poll = async () => {
    // TensorBoard keeps the frame while another tab is shown, without a height.
    if (innerHeight && !document.hidden) await ask();
    setTimeout(poll, POLL);
  };
  poll();
}
