"use strict";
/* Curves: one chart for every metric, with training and validation, and all runs, in it. */
(() => {
  const hl = window.hookline, el = hl.el, state = hl.state;
  const FIRST = 24, HEIGHT = 250, TOOLTIP_ROWS = 14;
  /* In a dense curve, each mean stands for this many pixels. */
  const PIXELS = 3;
  let charts = [];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) entry.target.chart.build();
  }, { rootMargin: "300px" });

  /* Exponential moving average, corrected for its start. */
  const smooth = (values, weight) => {
    let mean = 0, scale = 1;
    return values.map((value) => {
      if (value === null) return null;
      mean = mean * weight + value * (1 - weight);
      scale *= weight;
      return mean / (1 - scale);
    });
  };
  /* How many of the shown values there are per pixel. */
  const density = (steps, width) => {
    const [low, high] = state.zoom ? [state.zoom.min, state.zoom.max] : allSteps();
    const shown = steps.filter((step) => step >= low && step <= high);
    return shown.length < 2 ? 0 : (shown.length / Math.max(shown[shown.length - 1] - shown[0], 1)) * ((high - low) / width);
  };

  /* The means of neighbors, some at a time: a line through every value of a long noisy curve is a solid block. */
  const thin = (x, y, size) => {
    const steps = [], means = [];
    for (let at = 0; at < x.length; at += size) {
      const known = y.slice(at, at + size).filter((value) => value !== null);
      steps.push(x[Math.min(at + (size >> 1), x.length - 1)]);
      means.push(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null);
    }
    return { x: steps, y: means };
  };
  const positive = (values) => values.map((value) => (value !== null && value > 0 ? value : null));

  class Chart {
    constructor(title, series, options = {}) {
      Object.assign(this, { title, series, options, plot: null });
      this.tip = el("div", { class: "tip", hidden: true });
      this.box = el("div", { class: "plot", style: { minHeight: HEIGHT + "px" } });
      this.legend = el("div", { class: "legend" });
      this.card = el("figure", { class: "card chart", "data-chart": title },
        el("figcaption", {}, el("span", { class: "chart-title" }, title), this.legend), this.box);
      this.box.chart = this;
      seen.observe(this.box);
      charts.push(this);
    }

    visible() {
      return this.series.filter((each) => !state.hidden.has(each.run.id));
    }

    /* The lines to draw: for each series the values. With smoothing, or if there are more values than pixels, they are
       pale, and a line of means is on top. The pointer shows one line of each series: `told`. */
    lines() {
      const found = [];
      const weight = this.options.plain ? 0 : state.smoothing, width = Math.max(this.box.clientWidth, 120);
      this.isDense = false;
      for (const series of this.visible()) {
        const metric = series.metric, means = metric.means && metric.means.length > 1;
        const dense = means || density(metric.steps, width) > 1, pale = weight > 0 || dense;
        found.push({ series, x: metric.steps, y: metric.values, pale, told: weight === 0 });
        if (pale) {
          const x = means ? metric.mean_steps : metric.steps, y = smooth(means ? metric.means : metric.values, weight);
          const size = dense ? Math.ceil(PIXELS * density(x, width)) : 1;
          found.push({ series, ...(size > 1 ? thin(x, y, size) : { x, y }), pale: false, told: weight > 0 });
          this.isDense = this.isDense || dense;
        }
      }
      if (this.isLog()) for (const line of found) line.y = positive(line.y);
      return found;
    }

    isLog() {
      return state.log && !this.options.plain &&
        this.visible().some((each) => each.metric.values.some((value) => value !== null && value > 0));
    }

    build() {
      if (this.plot || !this.box.isConnected) return;
      seen.unobserve(this.box);
      const lines = this.lines();
      this.drawn = lines;
      this.drawLegend();
      const tables = lines.filter((line) => line.x.length).map((line) => [line.x, line.y]);
      if (!tables.length) {
        this.box.replaceChildren(el("p", { class: "empty" }, "No values."));
        return;
      }
      this.box.replaceChildren(this.tip);
      this.plot = new uPlot(this.plotOptions(lines.filter((line) => line.x.length)), uPlot.join(tables), this.box);
      if (state.zoom) this.plot.setScale("x", state.zoom);
    }

    plotOptions(lines) {
      const text = hl.css("--muted"), grid = { stroke: hl.css("--grid"), width: 1 };
      const axis = { stroke: text, grid, ticks: grid, font: "12px " + hl.css("--font") };
      const label = (plot, splits) => splits.map((each) => (each === null ? "" : hl.axisNumber(each)));
      return {
        width: Math.max(this.box.clientWidth, 120), height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7 },
          bind: { dblclick: () => () => { zoomTo(null); return null; } } },
        scales: {
          x: { time: false, range: (plot, min, max) => (state.zoom ? [min, max] : allSteps()) },
          y: { distr: this.isLog() ? 3 : 1, ...(this.options.zero && { range: (plot, min, max) => [0, max * 1.1 || 1] }) },
        },
        axes: [
          { ...axis, values: label, size: 34, incrs: [1, 2, 5].flatMap((n) => [...Array(10).keys()].map((e) => n * 10 ** e)) },
          { ...axis, values: label, size: 62 },
        ],
        series: [{}, ...lines.map((line) => this.lineOptions(line))],
        hooks: {
          setSelect: [(plot) => {
            if (plot.select.width > 4) {
              zoomTo({ min: plot.posToVal(plot.select.left, "x"), max: plot.posToVal(plot.select.left + plot.select.width, "x") });
            }
            plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          }],
          setCursor: [(plot) => this.showTip(plot)],
          draw: [(plot) => this.drawMarks(plot)],
        },
      };
    }

    lineOptions(line) {
      const color = line.series.color();
      const single = line.x.length < 3 || line.x.length * 14 < this.box.clientWidth;
      return {
        stroke: line.pale ? color + (color.startsWith("#") ? "66" : "") : color,
        alpha: line.pale && !color.startsWith("#") ? 0.4 : 1,
        width: line.pale ? 1.25 : line.told ? 1.8 : 2.4,
        dash: line.series.dash(),
        fill: line.series.fill ? color + "30" : undefined,
        points: { show: single && !line.pale && line.told, size: 5, fill: color },
        spanGaps: false,
      };
    }

    drawLegend() {
      const entries = this.visible().slice(0, 12).map((series) =>
        el("span", { class: "legend-entry" + (series.dash() ? ` ${series.dash()[0] > 4 ? "dashed" : "dotted"}` : "") },
          el("i", { style: { borderColor: series.color() } }), series.label()));
      const more = this.visible().length - entries.length;
      this.legend.replaceChildren(...entries, more > 0 ? `and ${more} more` : "", this.isDense ? "means over pale values" : "");
    }

    /* The marks of the run: only of one run at a time, otherwise nobody could read them. */
    marks() {
      const runs = hl.visibleRuns();
      const run = runs.length === 1 ? runs[0] : runs.find((each) => each.id === state.chosen);
      return state.marks && run && !this.options.plain ? run.marks || [] : [];
    }

    drawMarks(plot) {
      const { ctx, bbox } = plot, ratio = window.devicePixelRatio || 1;
      ctx.save();
      ctx.beginPath();
      const edge = 8 * ratio; // a mark at the first or the last step is drawn as a whole
      ctx.rect(bbox.left - edge, bbox.top, bbox.width + 2 * edge, bbox.height + 11 * ratio);
      ctx.clip();
      for (const mark of this.marks()) {
        const x = Math.round(plot.valToPos(mark.step, "x", true));
        if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
        ctx.strokeStyle = ctx.fillStyle = hl.css(`--mark-${mark.kind}`) || hl.css("--muted");
        if (mark.kind === "save" || mark.kind === "best") {
          const size = (mark.kind === "best" ? 8 : 6) * ratio, top = bbox.top + bbox.height; // below the curves
          const base = top + size * 1.3;
          ctx.beginPath();
          ctx.moveTo(x, top);
          ctx.lineTo(x - size * 0.6, base);
          ctx.lineTo(x + size * 0.6, base);
          ctx.fill();
        } else {
          ctx.lineWidth = 1.5 * ratio;
          ctx.setLineDash(mark.kind === "resume" ? [5 * ratio, 4 * ratio] : []);
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
      }
      ctx.restore();
    }

    showTip(plot) {
      const { left, top } = plot.cursor;
      if (left === null || left < 0) {
        this.tip.hidden = true;
        return;
      }
      const at = plot.posToVal(left, "x");
      const rows = [];
      let step = null;
      for (const line of this.drawn) {
        if (!line.x.length || !line.told) continue;
        const index = nearest(line.x, at);
        if (step === null || Math.abs(line.x[index] - at) < Math.abs(step - at)) step = line.x[index];
        rows.push([line.series, line.y[index], line.x[index]]);
      }
      const near = this.marks().filter((mark) => Math.abs(plot.valToPos(mark.step, "x") - left) < 6).slice(0, 4);
      this.tip.replaceChildren(
        el("div", { class: "tip-step" }, `step ${hl.number(step)}`),
        ...rows.slice(0, TOOLTIP_ROWS).map(([series, value, own]) => el("div", {},
          el("i", { style: { background: series.color() } }), series.label(), el("b", {}, hl.number(value)),
          own !== step && el("span", { class: "tip-step" }, `at step ${hl.number(own)}`))),
        rows.length > TOOLTIP_ROWS ? el("div", {}, `and ${rows.length - TOOLTIP_ROWS} more`) : "",
        ...near.map((mark) => el("div", { class: "tip-mark" }, mark.text)));
      this.tip.hidden = false;
      const over = plot.over, width = this.tip.offsetWidth;
      const x = over.offsetLeft + left + 14;
      this.tip.style.left = (x + width > this.box.clientWidth ? Math.max(over.offsetLeft + left - width - 14, 0) : x) + "px";
      this.tip.style.top = Math.max(over.offsetTop + Math.min(top, HEIGHT - 40 - this.tip.offsetHeight), 0) + "px";
    }

    /* Draw again, with the reader's choices as they are now. */
    rebuild() {
      if (!this.plot && !this.box.querySelector(".empty")) return;
      this.destroy();
      this.build();
    }

    destroy() {
      if (this.plot) this.plot.destroy();
      this.plot = null;
      this.tip.hidden = true;
    }

    resize() {
      if (this.plot) this.plot.setSize({ width: Math.max(this.box.clientWidth, 120), height: HEIGHT });
    }
  }

  const nearest = (steps, at) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= at) low = middle; else high = middle;
    }
    return Math.abs(steps[high] - at) < Math.abs(steps[low] - at) ? high : low;
  };

  /* The steps of all visible runs, and of their marks: charts below each other are easy to compare if they begin and end at the same step. */
  const allSteps = () => {
    let low = Infinity, high = -Infinity;
    const include = (first, last) => { low = Math.min(low, first); high = Math.max(high, last); };
    for (const run of hl.visibleRuns()) {
      for (const { steps } of run.metrics) if (steps.length) include(steps[0], steps[steps.length - 1]);
      for (const { step } of run.marks || []) include(step, step); // a run may fail after its last record
    }
    return low < high ? [low, high] : [(Number.isFinite(low) ? low : 0) - 1, (Number.isFinite(high) ? high : 0) + 1];
  };

  const zoomTo = (range) => {
    state.zoom = range;
    for (const chart of charts) {
      if (!chart.plot) continue;
      const steps = chart.plot.data[0];
      chart.plot.setScale("x", range || { min: steps[0], max: steps[steps.length - 1] });
    }
    requestAnimationFrame(() => charts.forEach((chart) => { if (chart.isDense) chart.rebuild(); }));
    document.querySelectorAll("[data-resets-zoom]").forEach((button) => { button.disabled = !range; });
  };

  const DASHES = new Map([["val", [7, 4]], ["test", [2, 3]]]);
  /* One line of a chart. With several runs, the color is that of the run, and the stage is the dash. */
  const asSeries = (run, metric, fill = false) => {
    const several = hl.data.runs.length > 1;
    return {
      run, metric, fill,
      color: () => (several ? hl.color(hl.runNumber(run.id)) : hl.stageColor(metric.stage)),
      dash: () => (several ? DASHES.get(metric.stage) : undefined),
      label: () => (several ? `${run.name} ${metric.stage}`.trim() : metric.stage || metric.name),
    };
  };

  /* All charts of a kind: a map of titles to series. */
  const groups = (kinds) => {
    const found = new Map();
    for (const run of hl.data.runs) {
      for (const metric of run.metrics) {
        if (!kinds.includes(metric.kind)) continue;
        if (!found.has(metric.chart)) found.set(metric.chart, []);
        found.get(metric.chart).push(asSeries(run, metric));
      }
    }
    return found;
  };

  /* Losses first, then what is evaluated, then the rest. */
  const ranked = (found) => [...found].map(([title, series], place) => {
    const loss = series.some((each) => each.metric.kind === "loss") ? 0 : 2;
    const evaluated = series.some((each) => each.metric.stage === "val" || each.metric.stage === "test") ? 0 : 1;
    return { title, series, rank: loss + evaluated, place };
  }).sort((one, other) => one.rank - other.rank || one.place - other.place);

  hl.charts = {
    Chart, asSeries, groups, zoomTo,
    clear() {
      for (const chart of charts) { seen.unobserve(chart.box); chart.destroy(); }
      charts = [];
    },
    rebuild: () => charts.forEach((chart) => chart.rebuild()),
    buildAll: () => charts.slice(0, 80).forEach((chart) => chart.build()),
    resize: () => charts.forEach((chart) => chart.resize()),
    of: (runId, name) => charts.filter((chart) => chart.series.some((each) => each.run.id === runId && each.metric.name === name)),

    /* The grid of all metrics, with a part of them if there are many. */
    grid() {
      const wanted = state.filter.trim().toLowerCase();
      const all = ranked(groups(["loss", "metric"])).filter((each) => each.title.toLowerCase().includes(wanted));
      const shown = all.slice(0, FIRST + state.more);
      const cards = shown.map(({ title, series }) => new Chart(title, series).card);
      const left = all.length - shown.length;
      const more = left > 0 && el("button", { class: "more", on: { click: () => { state.more += 4 * FIRST; hl.redraw(); } } },
        `Show ${Math.min(left, 4 * FIRST)} more of ${all.length} charts`);
      if (!all.length) return el("p", { class: "empty" }, wanted ? "No metric has this name." : "No metric was recorded.");
      return el("div", {}, el("div", { class: "grid" }, cards), more);
    },
  };

  let waiting = null;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(hl.charts.resize);
  });
})();
