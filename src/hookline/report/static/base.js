"use strict";
/* Shared by all parts of the page: elements, numbers, colors, and what the reader has chosen. */
window.hookline = (() => {
  const hl = {
    data: null,
    /* What the reader has chosen. It stays when the page gets new data. */
    state: {
      smoothing: 0, log: false, marks: true, theme: "auto", zoom: null, filter: "", more: 0,
      hidden: new Set(), chosen: null, sort: new Map(), images: new Map(), open: new Map(),
    },
    /* Called whenever the page is drawn again, with new data or after a choice. */
    listeners: [],
  };

  /* Create an element. Strings become text, never HTML. */
  hl.el = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") made.className = value;
      else if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
      else if (name === "style") Object.assign(made.style, value);
      else made.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined && child !== false) made.append(child);
    }
    return made;
  };

  hl.number = (value, digits = 5) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (!Number.isFinite(value)) return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) return value.toExponential(Math.min(digits - 1, 3));
    return String(Number(value.toPrecision(digits)));
  };

  hl.axisNumber = (value) => {
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e9) return Number((value / 1e9).toPrecision(4)) + "G";
    if (size >= 1e6) return Number((value / 1e6).toPrecision(4)) + "M";
    if (size >= 1e4) return Number((value / 1e3).toPrecision(4)) + "k";
    if (size < 1e-3) return value.toExponential(0) === Number(value).toExponential(1) ? value.toExponential(0) :
      Number(value.toPrecision(3)).toExponential();
    return String(Number(value.toPrecision(4)));
  };

  hl.seconds = (value) => {
    if (value === null || value === undefined) return "–";
    if (value < 1e-3) return Number((value * 1e6).toPrecision(3)) + " µs";
    if (value < 1) return Number((value * 1e3).toPrecision(3)) + " ms";
    if (value < 60) return Number(value.toPrecision(3)) + " s";
    const whole = Math.round(value);
    const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"],
      [Math.floor(whole / 60) % 60, "m"], [whole % 60, "s"]].filter(([count]) => count);
    return parts.slice(0, 2).map(([count, unit]) => count + unit).join(" ");
  };

  /* A time in seconds since 1970 as local date and time, written as in run.log. */
  hl.date = (time) => {
    const date = new Date(time * 1000), two = (number) => String(number).padStart(2, "0");
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
      `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  };

  hl.bytes = (value) => {
    if (value === null || value === undefined) return "–";
    for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
      if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + " " + unit;
    }
    return value + " B";
  };

  hl.percent = (share) => (share === null || share === undefined ? "–" : Number((share * 100).toPrecision(2)) + "%");

  const RUNS = 8;
  const STAGES = new Map([["train", 0], ["", 0], ["val", 1], ["test", 2]]);
  hl.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  hl.color = (number) => {
    if (number < RUNS) return hl.css(`--series-${number}`);
    const light = hl.isDark() ? 65 : 42;
    return `hsl(${Math.round(number * 137.508) % 360}, 60%, ${light}%)`;
  };
  hl.stageColor = (stage) => hl.color(STAGES.has(stage) ? STAGES.get(stage) : 3);
  hl.isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  };
  hl.runNumber = (id) => hl.data.runs.findIndex((run) => run.id === id);
  hl.visibleRuns = () => hl.data.runs.filter((run) => !hl.state.hidden.has(run.id));
  /* The run whose plan, config, checkpoints and images are shown. */
  hl.chosenRun = () => hl.data.runs.find((run) => run.id === hl.state.chosen) || hl.data.runs[0] || null;

  return hl;
})();
