"use strict";
/* The page: its sections in order, `show(data)` to draw everything, and `append(runId, records)` for new records. */
(() => {
  const hl = window.hookline, el = hl.el, state = hl.state;
  const page = document.getElementById("page");
  const MANY = 10;

  const section = (id, title, ...content) => {
    const filled = content.flat().filter(Boolean);
    const known = id === "verdict" || id === "summary"; // everybody sees what they are; a screen reader needs the title
    return filled.length ? el("section", { id }, el("h2", { class: known && "unseen" }, title), filled) : null;
  };
  const folded = (name, title, content) => el("details", { open: Boolean(state.open.get(name)), class: "card",
    on: { toggle: (event) => state.open.set(name, event.target.open) } }, el("summary", {}, title), content);

  const THEMES = ["auto", "light", "dark"];
  const showTheme = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    hl.redraw();
  };

  const header = () => {
    const data = hl.data, run = data.runs.length === 1 ? data.runs[0] : null;
    const theme = el("button", { id: "theme", title: "Switch between automatic, light and dark colors", on: { click: () => {
      state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
      showTheme(state.theme);
    } } }, "Colors: " + state.theme);
    const facts = [run && run.path, run && run.started && `started ${run.started}`,
      run && run.sources.length && run.status === "foreign" && `read from ${run.sources.join(", ")}`,
      `page of ${hl.date(data.made)}`, `hookline ${data.hookline}`];
    return el("header", {},
      el("div", { class: "row" },
        el("h1", {}, data.kind === "plan" ? `Plan of ${data.title}` : data.title,
          run && run.status !== "foreign" && run.status !== "unknown" &&
            el("span", { class: "badge " + run.status, id: "status" }, run.status)),
        theme),
      el("p", { class: "note" }, facts.filter(Boolean).join("  ·  ")));
  };

  const verdictCard = (run, others) => {
    const verdict = run.verdict;
    if (!verdict) return null;
    return el("div", { class: "verdict " + (verdict.kind === "healthy" ? "healthy" : "found"), "data-verdict": verdict.kind },
      el("p", { class: "sentence" }, others && el("span", { class: "of-run" }, run.name), verdict.text),
      verdict.evidence.map((line) => el("p", {}, line)),
      verdict.advice && el("p", { class: "advice" }, el("b", {}, "Next: "), verdict.advice),
      others && others.length > 0 && el("p", { class: "note" }, `Much the same in ${others.length} more: `,
        others.slice(0, MANY).map((each) => each.name).join(", "), others.length > MANY && ", ..."),
      verdict.others && verdict.others.length > 0 && el("ul", {}, verdict.others.map((other) =>
        el("li", {}, el("b", {}, other.text), " ", other.evidence.join(" ")))));
  };

  const verdicts = () => {
    const runs = hl.data.runs;
    if (runs.length === 1) return section("verdict", "Verdict", verdictCard(runs[0]));
    const found = runs.filter((run) => run.verdict && run.verdict.kind !== "healthy");
    const healthy = runs.length - found.length, kinds = new Map();
    for (const run of found) kinds.set(run.verdict.kind, [...(kinds.get(run.verdict.kind) || []), run]);
    return section("verdict", "Verdict", [...kinds.values()].map(([run, ...others]) => verdictCard(run, others)),
      healthy > 0 && el("div", { class: "verdict healthy" },
        el("p", { class: "sentence" }, found.length ? `Nothing stands out in the other ${healthy}.` : `Nothing stands out in these ${healthy} runs.`)));
  };

  const tiles = (run) => run.summary.map((fact) => el("div", { class: "tile" }, el("div", { class: "tile-label" }, fact.label),
    el("div", { class: "tile-value" }, fact.value), el("div", { class: "tile-note" }, fact.note)));
  const summary = (run) => run.summary && run.summary.length > 0 && el("div", { class: "tiles" }, tiles(run));

  /* Bring the tiles up to date with records that were appended, in the words of the page. */
  const tileNumber = (value) => (value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5) ? value.toFixed(4) :
    value.toExponential(2).replace(/e([+-])(\d)$/, "e$10$2"));
  const updateSummary = (run, metrics) => {
    for (const fact of run.summary || []) {
      const metric = metrics.get(fact.label);
      if (fact.label === "steps") {
        fact.value = run.steps.toLocaleString("en-US");
        fact.note = run.epochs ? `${run.epochs} epoch${run.epochs === 1 ? "" : "s"}` : "";
      } else if (metric && metric.best && metric.last) {
        const [step, value] = metric.best, last = metric.last[1];
        fact.value = tileNumber(value);
        fact.note = `best, at step ${step.toLocaleString("en-US")}` + (last === null || last === value ? "" : `; last ${tileNumber(last)}`);
      }
    }
    drawTiles(run);
  };
  const drawTiles = (run) => {
    const shown = document.querySelector("#summary .tiles");
    if (shown) shown.replaceChildren(...tiles(run));
  };
  /* Show another value of a fact of a run. */
  hl.setFact = (run, label, value) => {
    const fact = (run.summary || []).find((each) => each.label === label);
    if (!fact || fact.value === value) return;
    fact.value = value;
    drawTiles(run);
  };

  const parting = (loss) => {
    const runs = hl.data.runs, name = (id) => (runs.find((run) => run.id === id) || { name: id }).name;
    if (loss.bits) return `${name(loss.run)}: ${loss.bits}`;
    if (!loss.compared) return `${name(loss.run)}: no step in common`;
    if (loss.step === null) return `${name(loss.run)}: the same in all ${hl.number(loss.compared)} common steps`;
    return `${name(loss.run)}: differs from step ${hl.number(loss.step)} on (${loss.values.map((value) => hl.number(value, 9)).join(" against ")})`;
  };

  const comparison = () => {
    const found = hl.data.comparison, runs = hl.data.runs;
    if (!found) return null;
    const choose = (keep) => () => {
      state.hidden = new Set(runs.filter((run, number) => !keep(run, number)).map((run) => run.id));
      hl.redraw();
    };
    const losses = found.losses || [];
    return section("comparison", "Comparison",
      el("div", { class: "row buttons" }, el("span", { class: "note" }, "Curves:"),
        el("button", { on: { click: choose(() => true) } }, "all"), el("button", { on: { click: choose(() => false) } }, "none"),
        el("button", { on: { click: choose((run, number) => number < MANY) } }, "first ten"),
        el("span", { class: "note" }, "A click on a column sorts by it, a click on a run shows its details.")),
      el("div", { class: "card" }, hl.runTable(found)),
      losses.length > 0 && el("div", { class: "card", id: "losses" }, el("h3", {}, `Where ${losses[0].metric} differs from ${runs[0].name}`),
        el("ul", { class: "plain" }, losses.slice(0, 30).map((loss) => el("li", {}, parting(loss)))),
        losses.length > 30 && el("p", { class: "note" }, `and ${losses.length - 30} more runs`)),
      hl.differences("config", found.config), hl.differences("plan", found.plan),
      hl.differences("environment", found.environment),
      !found.config.length && !found.plan.length && !found.environment.length &&
        el("p", { class: "note" }, "Config, plan and environment are the same, as far as they were recorded."));
  };

  const controls = () => {
    const slider = el("input", { type: "range", id: "smoothing", min: 0, max: 0.99, step: 0.01, value: state.smoothing,
      on: { input: (event) => {
        state.smoothing = Number(event.target.value);
        shown.textContent = state.smoothing.toFixed(2);
        hl.charts.rebuild();
      } } });
    const shown = el("output", { for: "smoothing" }, state.smoothing.toFixed(2));
    const box = (id, label, name) => el("label", { class: "choice" }, el("input", { type: "checkbox", id, checked: state[name],
      on: { change: (event) => { state[name] = event.target.checked; hl.charts.rebuild(); } } }), label);
    return el("div", { class: "controls" },
      el("label", { class: "choice" }, "smoothing", slider, shown), box("log", "log scale", "log"), box("marks", "marks", "marks"),
      el("button", { id: "unzoom", "data-resets-zoom": true, disabled: !state.zoom, on: { click: () => hl.charts.zoomTo(null) } }, "reset zoom"),
      el("input", { type: "search", id: "filter", placeholder: "find a metric", "aria-label": "find a metric", value: state.filter,
        on: { input: (event) => { state.filter = event.target.value; curves.replaceChildren(hl.charts.grid()); } } }));
  };

  const curves = el("div", { id: "charts" });
  const curveSection = () => {
    curves.replaceChildren(hl.charts.grid());
    const key = [["resume", "resumed"], ["kill", "killed"], ["failure", "failed"], ["stop", "stopped"], ["save", "saved"], ["best", "best so far"]];
    const used = new Set(hl.data.runs.flatMap((run) => (run.marks || []).map((mark) => mark.kind)));
    const several = hl.visibleRuns().length > 1, drawn = hl.data.runs.some((run) => run.metrics.length);
    const marked = several ? hl.data.runs.find((run) => run.id === state.chosen) : null;
    if (several && !marked) {
      return section("curves", "Curves", controls(), curves, el("p", { class: "note marks-key" },
        used.size > 0 && "A click on a run in the table shows its marks. ", "Drag to zoom, double-click to reset."));
    }
    return section("curves", "Curves", drawn && controls(), curves,
      drawn && used.size > 0 && el("p", { class: "note marks-key" }, marked ? `Marks of ${marked.name}: ` : "Marks: ", key.filter(([kind]) => used.has(kind)).map(([kind, label]) =>
        el("span", { class: "mark-entry mark-" + kind }, label)), "Drag to zoom, double-click to reset."));
  };

  const rates = () => {
    const found = hl.charts.groups(["rate"]);
    return section("rates", "Learning rate", found.size > 0 && el("div", { class: "grid" },
      [...found].slice(0, 12).map(([title, series]) => new hl.charts.Chart(title, series, { plain: true }).card)));
  };

  const times = () => {
    const runs = hl.data.runs, cards = [];
    const of = (run, name) => run.metrics.find((metric) => metric.name === name);
    const series = runs.flatMap((run) => {
      const [whole, data] = [of(run, "train/time"), of(run, "train/data_time")];
      const single = runs.length === 1;
      return [whole && { ...hl.charts.asSeries(run, whole, single), label: () => (single ? "whole step" : run.name),
        ...(single && { color: () => hl.color(0) }) },
      data && single && { ...hl.charts.asSeries(run, data, true), label: () => "waiting for data", color: () => hl.color(1) }].filter(Boolean);
    });
    if (series.length) cards.push(new hl.charts.Chart("seconds per step", series).card);
    const evaluated = (hl.charts.groups(["time"]).get("time") || []).filter((each) => each.metric.stage !== "train");
    if (evaluated.length && runs.length === 1) {
      cards.push(new hl.charts.Chart("seconds per batch of an evaluation", evaluated, { plain: true }).card);
    }
    const run = hl.chosenRun();
    const bar = run && run.hooks && run.hooks.parts &&
      hl.timeBar(run.hooks.parts, runs.length > 1 ? `Where the time of ${run.name} went` : "Where the time went");
    return section("times", "Time per step", bar, cards.length > 0 && el("div", { class: "grid" }, cards));
  };

  const memory = (run) => {
    const samples = (run.hooks && run.hooks.memory) || [];
    const cards = [["resident", "resident memory (MiB)", 2 ** 20], ["tensors", "tensors of model, optimizer and hooks (MiB)", 2 ** 20], ["device", "device memory (MiB)", 2 ** 20]]
      .map(([name, title, unit]) => {
        const known = samples.filter((each) => typeof each[name] === "number");
        if (known.length < 2) return null;
        const metric = { name: title, stage: "", steps: known.map((each) => each.step), values: known.map((each) => each[name] / unit) };
        return new hl.charts.Chart(title, [{ ...hl.charts.asSeries(run, metric), label: () => name }], { plain: true, zero: true }).card;
      });
    return section("memory", "Memory", cards.some(Boolean) && el("div", { class: "grid" }, cards));
  };

  const images = (run) => {
    const figures = (run.images || []).filter((each) => each.items.length).map(({ name, items }) => {
      const key = `${run.id}\n${name}`;
      const picture = el("img", { alt: name }), caption = el("pre", {}), label = el("span", { class: "note" });
      const set = (index) => {
        const item = items[Math.min(index, items.length - 1)];
        state.images.set(key, index);
        picture.src = item.source;
        caption.textContent = item.caption || "";
        label.textContent = `step ${hl.number(item.step)}`;
      };
      const start = state.images.has(key) ? state.images.get(key) : items.length - 1;
      const slider = el("input", { type: "range", min: 0, max: items.length - 1, value: start, "aria-label": `step of ${name}`,
        on: { input: (event) => set(Number(event.target.value)) } });
      set(start);
      return el("figure", { class: "card image" }, el("figcaption", {}, el("span", { class: "chart-title" }, name), label),
        items.length > 1 && slider, picture, caption);
    });
    return section("images", "Images", figures.length > 0 && el("div", { class: "grid" }, figures));
  };

  const details = (run) => {
    const several = hl.data.runs.length > 1;
    const pick = several && el("label", { class: "choice" }, "Details of ", el("select", { id: "chosen", on: { change: (event) => {
      state.chosen = event.target.value;
      hl.redraw();
    } } }, hl.data.runs.map((each) => el("option", { value: each.id, selected: each.id === run.id }, each.name))));
    const hooks = run.hooks && Array.isArray(run.hooks.hooks) && run.hooks.hooks.length > 0;
    const left = run.log && run.log.length > 0;
    return [
      several && el("section", { class: "pick" }, pick, summary(run), verdictCard(run)),
      images(run),
      section("plan", "Hooks", run.plan && hl.planPicture(run.plan, hooks ? run.hooks.hooks : []),
        hooks && folded("hooks", `What each hook cost (${run.hooks.hooks.length})`, hl.hookTable(run.hooks.hooks))),
      memory(run),
      section("checkpoints", "Checkpoints", run.checkpoints.length > 0 && el("div", { class: "card" }, hl.checkpointTable(run.checkpoints))),
      section("warnings", "Warnings", run.warnings.length > 0 && el("div", { class: "card" }, hl.table("warnings", [
        { name: "kind", show: String }, { name: "step", number: true }, { name: "text", show: (value) => el("span", { class: "wrapped" }, value) },
      ], run.warnings.map((each) => [each.kind, each.step, each.text])))),
      section("config", "Config and environment",
        run.config.length > 0 && folded("config", `Config (${run.config.length} values)`, hl.pairs(run.config)),
        run.environment.length > 0 && folded("environment", "Environment", hl.pairs(run.environment)),
        left && folded("log", "The end of run.log", el("pre", { class: "log" }, run.log.join("\n")))),
    ];
  };

  hl.redraw = () => {
    const data = hl.data, top = window.scrollY, run = hl.chosenRun();
    hl.charts.clear();
    const content = data.kind === "plan" ? [header(), section("plan", "Hooks along the loop", hl.planPicture(data.plan, []))] :
      [header(), verdicts(), data.runs.length === 1 && section("summary", "Summary", summary(run)), comparison(), curveSection(),
        rates(), times(), run && details(run)];
    page.replaceChildren(...content.flat().filter(Boolean),
      el("footer", { class: "note" }, "Made by hookline. This file is complete: it loads nothing from elsewhere."));
    window.scrollTo(0, top);
    hl.listeners.forEach((listener) => listener(data));
  };

  /* Put the parts that runs have in common back into them; see page.py. */
  const unpack = (data) => {
    const { shared, ...rest } = data, of = (number) => (number === null ? null : shared[number]);
    if (!shared) return data;
    const metric = (each) => ({ ...each, steps: [...of(each.steps)], ...(each.means && { mean_steps: [...of(each.mean_steps)] }) });
    return { ...rest, runs: data.runs.map((run) => ({ ...run, plan: of(run.plan), config: run.config.map(of),
      environment: run.environment.map(of), metrics: run.metrics.map(metric) })) };
  };

  /* Draw everything from data. What the reader has chosen stays. */
  hl.show = (packed) => {
    const first = hl.data === null, data = unpack(packed);
    hl.data = data;
    if (first && data.runs.length > MANY) state.hidden = new Set(data.runs.slice(MANY).map((run) => run.id));
    hl.redraw();
  };

  /* Add records of a run to its curves: objects with a step and numbers by name. */
  let waiting = false;
  const dirty = new Set();
  hl.append = (runId, records) => {
    const run = hl.data.runs.find((each) => each.id === runId);
    if (!run) return;
    const metrics = new Map(run.metrics.map((metric) => [metric.name, metric]));
    let unknown = false;
    for (const record of records) {
      run.steps = Math.max(run.steps, record.step);
      run.epochs = Math.max(run.epochs, record.epoch || 0);
      for (const [name, value] of Object.entries(record)) {
        if (name === "step" || name === "epoch") continue;
        const metric = metrics.get(name);
        if (!metric) { unknown = true; continue; }
        metric.steps.push(record.step);
        metric.values.push(value);
        if (metric.means) { metric.mean_steps.push(record.step); metric.means.push(value); }
        metric.count += 1;
        metric.last = [record.step, value];
        if (value !== null && metric.best && (metric.rule === "greater" ? value > metric.best[1] : value < metric.best[1])) {
          metric.best = metric.last;
        }
        hl.charts.of(runId, name).forEach((chart) => dirty.add(chart));
      }
    }
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        dirty.forEach((chart) => chart.rebuild());
        dirty.clear();
        updateSummary(run, metrics);
      });
    }
    return !unknown;
  };

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => hl.redraw());
  window.addEventListener("beforeprint", () => {
    showTheme("light"); // paper is white
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    hl.charts.buildAll();
  });
  window.addEventListener("afterprint", () => showTheme(state.theme));
  const given = document.getElementById("data");
  if (given && given.textContent.trim()) hl.show(JSON.parse(given.textContent));
})();
