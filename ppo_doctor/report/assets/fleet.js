(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  // Text of logs reaches the page as text only: no string is ever parsed as HTML.
  const el = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  };
  const data = JSON.parse($("data").textContent);
  const { words, about } = data;
  const size = data.run.length;
  const word = (name, run) => words[name][data[name][run]];
  const number = (value) => (value === null || value === undefined ? "" : String(value).replace("-", "−"));
  const MARKS = { healthy: "✓", warning: "!", unhealthy: "✗", inconclusive: "?", failed: "–" };

  // Named values of a run: those that all runs with the same names share are held once.
  const pairs = (kept, run) => {
    const [shape, ...rest] = kept.rows[run];
    let at = 0;
    return kept.names[shape].map((name, i) => [name, kept.shared[shape][i] ?? rest[at++]]);
  };
  const settings = (run) => pairs(data.settings, run).map(([name, at]) => [name, about.setting_values[at]]);
  const same = (a, b) => a === b || (a.trim() !== "" && b.trim() !== "" && Number(a) === Number(b));

  // Which runs are shown, and in what order.
  const field = $("search");
  const found = $("found");
  const choices = { verdict: $("verdict-of"), finding: $("finding-of"), trainer: $("trainer-of") };
  const findings = (run) => data.findings[run].filter((_, i) => i % 2 === 0).map((at) => about.findings[at][0]);
  const hay = [];
  const text = (run) => (hay[run] ??= [
    data.run[run], data.source[run], ...["headline", "what", "cause", "trainer", "model", "environment", "outcome", "verdict"].map((name) => word(name, run)), ...findings(run),
  ].join("\n").toLowerCase());
  const named = new Set(data.settings.names.flat());
  const known = ["cause", "trainer", "model", "environment", "outcome", "verdict", "algorithm"];
  const asked = () => [...field.value.matchAll(/"([^"]+)"|(\S+)/g)].map((match) => match[1] ?? match[2]).map((token) => {
    const cut = token.indexOf("=");
    const [name, value] = [token.slice(0, cut), token.slice(cut + 1)];
    if (cut > 0 && known.includes(name)) return (run) => word(name, run) === value;
    if (cut > 0 && named.has(name)) return (run) => settings(run).some(([key, held]) => key === name && same(held, value));
    return (run) => text(run).includes(token.toLowerCase());
  });
  const shortName = (run) => data.run[run].slice(data.prefix, data.folders ? data.run[run].lastIndexOf("/") : undefined);
  const collator = new Intl.Collator("en", { numeric: true });
  const KEYS = {
    run: shortName, verdict: (run) => data.rank[run], what: (run) => word("what", run), end: (run) => data.end[run],
    since: (run) => data.since[run], trainer: (run) => word("trainer", run), wasted: (run) => data.wasted[run], modified: (run) => data.modified[run],
  };
  let [key, down] = ["verdict", false];
  const sorted = (runs) => {
    const of = runs.map((run) => [KEYS[key](run), run]);
    const missing = (value) => value === null || value === "";
    of.sort(([a, i], [b, j]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b) || data.rank[i] - data.rank[j];
      const way = typeof a === "string" ? collator.compare(a, b) : a - b;
      return (down ? -way : way) || data.rank[i] - data.rank[j];
    });
    return of.map(([, run]) => run);
  };
  let shown = [];
  const choose = () => {
    const tests = asked();
    for (const name of ["verdict", "trainer"]) {
      const value = choices[name].value;
      if (value) tests.push((run) => word(name, run) === value);
    }
    const finding = choices.finding.value;
    if (finding) tests.push((run) => findings(run).includes(finding));
    shown = sorted([...data.run.keys()].filter((run) => tests.every((test) => test(run))));
    found.textContent = `${shown.length.toLocaleString("en")} of ${size.toLocaleString("en")}`;
    open = -1;
    $("list").setAttribute("aria-rowcount", shown.length + 1);
    view.scrollTop = 0;
    draw(true);
  };

  // The list: only the lines in view are elements; one run at a time is unfolded.
  const LINE = 40;
  const view = $("view");
  const rows = $("rows");
  let open = -1;
  let [drawnFrom, drawnTo] = [-1, -1];
  let unfolded = null;
  const reward = (run) => {
    const [start, end] = [data.start[run], data.end[run]];
    return start === null || end === null ? "" : `${number(start)} → ${number(end)}`;
  };
  const day = (run) => new Date(1000 * data.modified[run]).toISOString().slice(0, 16).replace("T", " ");
  const badge = (verdict) => el("span", { class: `badge ${verdict}` }, el("span", { class: "mark", "aria-hidden": "true" }, MARKS[verdict] ?? ""), ` ${verdict === "failed" ? "not judged" : verdict}`);
  const cell = (name, ...children) => el("span", { role: "cell", class: `c-${name}` }, ...children);
  const line = (at) => {
    const run = shown[at];
    const name = el("button", { type: "button", class: "as-link", "aria-expanded": String(at === open), title: data.run[run] }, el("bdi", {}, shortName(run)));
    const made = el("div", { role: "row", class: `line${at === open ? " open" : ""}`, "aria-rowindex": at + 2, "data-at": at },
      cell("run", name), cell("verdict", badge(word("verdict", run))), cell("what", word("what", run)), cell("end", reward(run)),
      cell("since", number(data.since[run])), cell("trainer", word("trainer", run)),
      cell("wasted", data.wasted[run] === null ? "" : `${data.wasted[run]} %`), cell("modified", day(run)));
    made.querySelector(".c-what").title = word("what", run);
    made.style.top = `${at * LINE + (open >= 0 && at > open ? unfolded.offsetHeight : 0)}px`;
    return made;
  };
  const draw = (anew) => {
    const extra = unfolded && open >= 0 ? unfolded.offsetHeight : 0;
    rows.style.height = `${shown.length * LINE + extra}px`;
    const before = open >= 0 && view.scrollTop > (open + 1) * LINE ? Math.min(extra, view.scrollTop - (open + 1) * LINE) : 0;
    const from = Math.max(0, Math.floor((view.scrollTop - before) / LINE) - 6);
    const to = Math.min(shown.length, Math.ceil((view.scrollTop - before + view.clientHeight) / LINE) + 6);
    if (!anew && from === drawnFrom && to === drawnTo) return;
    [drawnFrom, drawnTo] = [from, to];
    const focus = document.activeElement?.closest?.("#rows .line")?.dataset.at;
    const lines = [];
    for (let at = from; at < to; at++) lines.push(line(at));
    rows.replaceChildren(...lines, ...(open >= 0 && unfolded ? [unfolded] : []));
    if (!shown.length) rows.append(el("p", { class: "none" }, "No run matches."));
    if (focus !== undefined) rows.querySelector(`[data-at="${focus}"] button`)?.focus({ preventScroll: true });
  };
  const fold = (at) => {
    unfolded = null;
    open = open === at ? -1 : at;
    if (open >= 0) {
      unfolded = details(shown[open]);
      unfolded.style.top = `${(open + 1) * LINE}px`;
      rows.append(unfolded); // its height is known once it is in the page
    }
    draw(true);
  };

  // What an unfolded run shows.
  const term = (name, ...values) => (values.length ? [el("dt", {}, name), ...values.map((value) => el("dd", {}, value))] : []);
  const quoted = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
  const causes = (run) => data.causes[run].map((at) => about.causes[at]).map(([id, confidence, severity, benign]) => el("span", {}, el("code", {}, id), ` ${confidence}${benign ? ", no fault" : `, ${severity}`}`));
  const fired = (run) => {
    const list = [];
    for (let i = 0; i < data.findings[run].length; i += 2) {
      const [id, severity, title] = about.findings[data.findings[run][i]];
      const since = data.findings[run][i + 1];
      list.push(el("span", {}, el("span", { class: `sev ${severity}` }, severity), ` ${title}${since === null ? "" : `, from step ${since}`} `, el("code", {}, id)));
    }
    return list;
  };
  const levels = (run) => {
    const held = pairs(data.metrics, run);
    if (!held.length) return null;
    const lines = held.map(([name, [start, end]]) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)), el("td", {}, number(start)), el("td", {}, number(end))));
    const head = el("tr", {}, ...["Metric", "Start", "End"].map((name) => el("th", { scope: "col" }, name)));
    return el("table", { class: "levels" }, el("thead", {}, head), el("tbody", {}, ...lines));
  };
  const configured = (run) => {
    const held = settings(run);
    if (!held.length) return null;
    const list = held.map(([name, value]) => el("li", {}, el("code", {}, name), " ", el("span", {}, value)));
    return el("div", { class: "configured" }, el("h4", {}, `${held.length} settings`), el("ul", { tabindex: "0" }, ...list));
  };
  const details = (run) => {
    const source = data.source[run] || data.run[run];
    const report = data.report[run] ? el("a", { href: data.report[run] }, "Open the report of this run") : null;
    const command = el("code", { class: "command" }, `ppo-doctor analyze ${quoted(source)}`);
    const facts = [["records", data.records[run] || ""], ["last step", number(data.last[run])], ["updates per batch", number(data.updates[run])], ["model", word("model", run)], ["environment", word("environment", run)]].filter(([, value]) => value !== "").map(([name, value]) => `${name} ${value}`).join(" · ");
    return el("div", { class: "details", role: "row" }, el("div", { role: "cell" },
      word("headline", run) ? el("p", { class: "says" }, word("headline", run)) : null,
      el("p", { class: "quiet path" }, data.run[run]), facts ? el("p", { class: "quiet" }, facts) : null,
      el("dl", {}, ...term("causes", ...causes(run)), ...term("findings", ...fired(run)), ...term("report", ...[report, command].filter(Boolean))),
      el("div", { class: "numbers" }, levels(run), configured(run))));
  };

  // What the page is asked.
  let late = 0;
  view.addEventListener("scroll", () => { cancelAnimationFrame(late); late = requestAnimationFrame(() => draw(false)); });
  addEventListener("resize", () => draw(true));
  rows.addEventListener("click", (event) => {
    const at = event.target.closest(".line")?.dataset.at;
    if (at !== undefined && !getSelection().toString()) fold(Number(at));
  });
  rows.addEventListener("keydown", (event) => {
    const at = event.target.closest(".line")?.dataset.at;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at === undefined || !step) return;
    const next = Math.min(shown.length - 1, Math.max(0, Number(at) + step));
    event.preventDefault();
    const top = next * LINE + (open >= 0 && next > open ? unfolded.offsetHeight : 0);
    if (top < view.scrollTop) view.scrollTop = top;
    const room = view.clientHeight - $("heads").offsetHeight;
    if (top + LINE > view.scrollTop + room) view.scrollTop = top + LINE - room;
    draw(true);
    rows.querySelector(`[data-at="${next}"] button`)?.focus({ preventScroll: true });
  });
  const mark = () => {
    for (const button of all("#list [data-sort]")) {
      const head = button.parentElement;
      if (button.dataset.sort === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  };
  for (const button of all("#list [data-sort]")) button.addEventListener("click", () => {
    const asked = button.dataset.sort;
    down = key === asked ? !down : ["wasted", "modified"].includes(asked);
    key = asked;
    mark();
    choose();
  });
  const go = () => $("runs").scrollIntoView({ block: "start" });
  const set = (name, value) => { (name === "search" ? field : choices[name]).value = value; };
  const clear = () => { for (const name of ["search", ...Object.keys(choices)]) set(name, ""); };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-filter]");
    if (button) { clear(); set(button.dataset.filter, button.dataset.value); choose(); go(); }
    const crossed = event.target.closest(".crossed button");
    if (crossed) {
      const [name, value] = [crossed.closest("table").dataset.name, crossed.dataset.value];
      const token = `${name}=${value}`;
      clear();
      set("search", /\s/.test(token) ? `"${token}"` : token);
      set("finding", crossed.closest("tr").dataset.finding);
      choose();
      go();
    }
  });
  let soon = 0;
  field.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(choose, 60); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { choose(); go(); }
    if (event.key === "Escape") { field.value = ""; choose(); }
  });
  for (const select of Object.values(choices)) select.addEventListener("change", choose);
  $("reset").addEventListener("click", () => { clear(); choose(); });

  // One table of findings at a time.
  const by = $("by-of");
  if (by) {
    const tables = all(".cross");
    const one = () => tables.forEach((table, at) => { table.hidden = at !== Number(by.value); });
    by.addEventListener("change", one);
    by.parentElement.hidden = false;
    one();
  }
  $("list").hidden = false;
  document.querySelector(".search").hidden = false;
  mark();
  choose();
})();
