(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const make = (name, attributes, svg = true) => {
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // Search: causes, checks and, on a page of several runs, runs; what holds a match unfolds.
  const box = document.querySelector(".search");
  const field = document.getElementById("search");
  const found = document.getElementById("found");
  const rows = all(".filtered").map((row) => [row, row.textContent.toLowerCase()]);
  const folds = all("details").filter((fold) => fold.querySelector(".filtered")).map((fold) => [fold, fold.open]);
  let asked = "";
  const filter = () => {
    const words = field.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let hits = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      hits += !row.hidden;
    }
    if (!asked !== !words.length) for (const [fold, open] of folds) fold.open = words.length > 0 || open;
    asked = words.join(" ");
    found.textContent = words.length ? `${hits} of ${rows.length}` : "";
  };
  field.addEventListener("input", filter);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") (rows.find(([row]) => !row.hidden) || [root])[0].scrollIntoView();
    if (event.key === "Escape") { field.value = ""; filter(); }
  });
  box.hidden = false;

  // A link to a run unfolds it.
  const unfold = (id) => { const fold = document.getElementById(id); if (fold && fold.tagName === "DETAILS") fold.open = true; };
  for (const link of all(".runs a")) link.addEventListener("click", () => unfold(link.hash.slice(1)));
  unfold(location.hash.slice(1));

  // Read-out: a range slider over each plot, so that arrow keys, mouse and finger all work.
  const [head, height] = [22, 118];
  const share = (value, low, high) => (value / 4 - low / 4) / (high / 4 - low / 4);
  const readOut = (plot) => {
    const points = (plot.dataset.points || "").split(" ").filter(Boolean).map((pair) => pair.split(",").map(Number));
    if (!points.length) return;
    const [first, last, low, high, kind] = plot.dataset.axis.split(" ").map((part, i) => (i < 4 ? Number(part) : part));
    const place = ([step, value]) => {
      const log = kind === "log" ? Math.log10 : (number) => number;
      const x = last > first ? (100 * (step - first)) / (last - first) : 50;
      return [`${x}%`, head + height * (1 - share(log(value), log(low), log(high)))];
    };
    const data = plot.querySelector(".data");
    const title = plot.closest("figure");
    const reading = make("span", { class: "reading", "aria-hidden": "true" }, false);
    title.querySelector("figcaption").append(reading);
    const cursor = make("line", { class: "cursor", y1: head, y2: head + height, visibility: "hidden" });
    const spot = make("circle", { class: "spot", r: 4.5, visibility: "hidden" });
    data.append(cursor, spot);
    const label = `Read ${title.dataset.name} step by step`;
    const scrub = make("input", { type: "range", class: "scrub", min: 0, max: points.length - 1, value: 0, "aria-label": label }, false);
    const show = (index) => {
      const [x, y] = place(points[index]);
      const words = `step ${points[index][0]}: ${points[index][1]}`;
      for (const key of ["x1", "x2"]) cursor.setAttribute(key, x);
      spot.setAttribute("cx", x);
      spot.setAttribute("cy", y);
      for (const mark of [cursor, spot]) mark.setAttribute("visibility", "visible");
      reading.textContent = words;
      scrub.setAttribute("aria-valuetext", words);
    };
    const hide = () => {
      for (const mark of [cursor, spot]) mark.setAttribute("visibility", "hidden");
      reading.textContent = "";
    };
    const nearest = (step) => {
      let [a, b] = [0, points.length - 1];
      while (b - a > 1) { const m = (a + b) >> 1; if (points[m][0] <= step) a = m; else b = m; }
      return step - points[a][0] <= points[b][0] - step ? a : b;
    };
    const point = (event) => {
      const frame = scrub.getBoundingClientRect();
      const at = Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
      scrub.value = nearest(first + at * (last - first));
      show(Number(scrub.value));
    };
    scrub.setAttribute("aria-valuetext", `step ${points[0][0]}: ${points[0][1]}`);
    scrub.addEventListener("pointermove", point);
    scrub.addEventListener("pointerdown", (event) => { event.preventDefault(); scrub.focus({ preventScroll: true }); point(event); });
    scrub.addEventListener("pointerleave", hide);
    scrub.addEventListener("input", () => show(Number(scrub.value)));
    scrub.addEventListener("focus", () => show(Number(scrub.value)));
    scrub.addEventListener("blur", hide);
    plot.append(scrub);
  };
  all(".plot").forEach(readOut);
})();
