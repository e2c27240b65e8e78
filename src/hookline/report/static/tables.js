"use strict";
/* Tables: any of them can be sorted by any column. Also the bar of where the time went, and lists of keys and values. */
(() => {
  const hl = window.hookline, el = hl.el, state = hl.state;

  const order = (one, other) => {
    const empty = (value) => value === null || value === undefined || value === "";
    if (empty(one) || empty(other)) return empty(one) - empty(other);
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other), "en", { numeric: true });
  };

  /* columns: {name, show(value, row), number, best: "less" | "greater"}; rows: lists of values.
     `key` is where the chosen order is kept. */
  hl.table = (key, columns, rows, options = {}) => {
    const sorted = () => {
      const by = state.sort.get(key);
      if (!by) return rows;
      const last = (row) => row[by.column] === null || row[by.column] === undefined;
      return [...rows].sort((one, other) => (last(one) || last(other) ? last(one) - last(other) :
        order(one[by.column], other[by.column]) * (by.down ? -1 : 1)));
    };
    const best = columns.map((column, number) => {
      const values = rows.map((row) => row[number]).filter((value) => typeof value === "number");
      if (!column.best || values.length < 2 || new Set(values).size < 2) return null;
      return column.best === "greater" ? values.reduce((a, b) => Math.max(a, b)) : values.reduce((a, b) => Math.min(a, b));
    });
    const body = el("tbody");
    const heads = columns.map((column, number) => {
      const button = el("button", { on: { click: () => {
        const by = state.sort.get(key);
        state.sort.set(key, { column: number, down: by && by.column === number ? !by.down : column.best === "greater" });
        fill();
      } } }, column.name);
      return el("th", { scope: "col", class: column.number ? "number" : "" }, button);
    });
    const fill = () => {
      const by = state.sort.get(key);
      heads.forEach((head, number) => {
        if (by && by.column === number) head.setAttribute("aria-sort", by.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      body.replaceChildren(...sorted().map((row) => el("tr", options.row ? options.row(row) : {},
        columns.map((column, number) => el("td",
          { class: (column.number ? "number" : "") + (best[number] !== null && row[number] === best[number] ? " best" : "") },
          column.show ? column.show(row[number], row) : hl.number(row[number]))))));
    };
    fill();
    return el("div", { class: "scroll" }, el("table", { "data-table": key }, el("thead", {}, el("tr", {}, heads)), body));
  };

  /* Keys and values, as for a config. */
  hl.pairs = (rows) => el("div", { class: "scroll" }, el("table", { class: "pairs" }, el("tbody", {},
    rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))))));

  const PARTS = ["data", "forward", "backward", "optimizer", "hooks", "saving", "validation", "other"];
  /* A bar of where the time of a run went. */
  hl.timeBar = (parts, title) => {
    const known = PARTS.filter((name) => parts[name] && parts[name].seconds > 0);
    const total = known.reduce((sum, name) => sum + parts[name].seconds, 0);
    if (!total) return null;
    const bar = known.map((name) => el("span", { class: "part", title: `${name}: ${hl.seconds(parts[name].seconds)}`,
      style: { width: (100 * parts[name].seconds) / total + "%", background: hl.color(PARTS.indexOf(name)) } }));
    const labels = known.map((name) => el("span", { class: "legend-entry" },
      el("i", { class: "square", style: { background: hl.color(PARTS.indexOf(name)) } }),
      `${name} `, el("b", {}, hl.percent(parts[name].seconds / total)), ` ${hl.seconds(parts[name].seconds)}`));
    return el("div", { class: "card" }, el("h3", {}, title), el("div", { class: "bar" }, bar),
      el("div", { class: "legend" }, labels));
  };

  /* What each hook cost. */
  hl.hookTable = (hooks) => {
    const columns = [
      { name: "hook", show: String }, { name: "role", show: String }, { name: "priority", number: true },
      { name: "time", number: true, show: hl.seconds }, { name: "share", number: true, show: hl.percent },
      { name: "calls", number: true }, { name: "longest", number: true, show: hl.seconds },
      { name: "tensors", number: true, show: hl.bytes },
    ];
    const rows = hooks.map((hook) => {
      const points = Object.values(hook.points || {});
      const memory = hook.memory || {};
      const longest = points.map((point) => point.longest || 0).reduce((a, b) => Math.max(a, b), 0);
      return [hook.name, hook.role, hook.priority, hook.seconds, hook.share,
        points.reduce((sum, point) => sum + (point.calls || 0), 0), longest, memory.tensors ?? null];
    });
    const used = columns.map((column, number) => rows.some((row) => row[number] !== null && row[number] !== undefined));
    return hl.table("hooks", columns.filter((column, number) => used[number]),
      rows.map((row) => row.filter((value, number) => used[number])));
  };

  hl.checkpointTable = (checkpoints) => hl.table("checkpoints", [
    { name: "file", show: String }, { name: "step", number: true }, { name: "epoch", number: true },
    { name: "best for", show: (value) => value || "" }, { name: "size", number: true, show: hl.bytes },
    { name: "saved", show: (value) => (value === null ? "–" : hl.date(value)) },
    { name: "can be resumed", show: (value) => (value ? "yes" : "no") },
  ], checkpoints.map((each) => [each.name, each.step, each.epoch, each.best, each.size, each.saved, each.complete]));

  /* Several runs: one row each. A click on the color shows or hides its curves, one on the name shows its details. */
  hl.runTable = (comparison) => {
    const columns = comparison.table.columns, runs = hl.data.runs;
    const setting = (value) => (typeof value === "string" && value.length > 9 && /^[-+.\de]+$/i.test(value) && Number(value) % 1 ?
      el("span", { title: value }, hl.number(Number(value))) : hl.number(value));
    const shown = columns.map((column) => ({
      name: column.name === "run" ? "run" : column.name, number: column.kind === "metric" || column.name === "steps" || column.name === "seconds",
      best: column.rule,
      show: column.name === "run" ? (value, row) => name(value, row[row.length - 1]) :
        column.name === "seconds" ? hl.seconds : column.kind === "config" ? setting : undefined,
    }));
    const name = (value, number) => el("span", { class: "run-name" },
      el("input", { type: "checkbox", checked: !state.hidden.has(runs[number].id), "aria-label": `show ${value}`,
        style: { accentColor: hl.color(number) },
        on: { change: (event) => {
          if (event.target.checked) state.hidden.delete(runs[number].id); else state.hidden.add(runs[number].id);
          hl.charts.rebuild();
        } } }),
      el("button", { class: "link", on: { click: () => { state.chosen = runs[number].id; hl.redraw(); } } }, value));
    const rows = runs.map((run, number) => [...columns.map((column) => column.cells[number]), number]);
    return hl.table("runs", shown, rows, {
      row: (row) => ({ class: hl.chosenRun() && runs[row[row.length - 1]].id === hl.chosenRun().id ? "chosen" : "" }),
    });
  };

  /* Only what differs: a row per key, a column per run. */
  hl.differences = (title, rows) => rows.length > 0 && el("div", { class: "card", "data-differs": title },
    el("h3", {}, `Different in the ${title}`),
    hl.table(`differs-${title}`, [{ name: title === "plan" ? "point" : "key", show: String },
      ...hl.data.runs.map((run) => ({ name: run.name, show: (value) => (value === null ? "–" : String(value)) }))],
    rows.map((row) => [row.key, ...row.values])));
})();
