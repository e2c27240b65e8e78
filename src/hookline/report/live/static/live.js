"use strict";
/* The live part of the page: it follows a run, or the list of runs, and asks a run to do something. */
(() => {
  const hl = window.hookline, el = hl.el;
  const token = new URLSearchParams(location.search).get("token") || "";
  const address = (path, more = {}) => {
    const query = new URLSearchParams(token ? { ...more, token } : more).toString();
    return path + (query ? `?${query}` : "");
  };
  const now = () => Date.now() / 1000;
  const age = (time) => {
    if (time === null || time === undefined) return "–";
    const seconds = Math.round(now() - time);
    return seconds < 2 ? "just now" : `${hl.seconds(seconds)} ago`;
  };
  /* A duration as in the summary of a run: 1d2h3m4s. */
  const duration = (seconds) => {
    const whole = Math.round(seconds);
    const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "m"], [whole % 60, "s"]];
    return parts.filter(([count]) => count).map(([count, unit]) => count + unit).join("") || "0s";
  };
  const badge = (name) => el("span", { class: "badge " + name, "data-state": name }, name);

  /* -- what both kinds of pages have: the connection and alerts */

  const connection = el("span", { class: "note", id: "connection" }, "connecting");
  const follow = (url, handlers) => {
    const source = new EventSource(url());
    source.onopen = () => { connection.textContent = "live"; };
    source.onerror = () => {
      connection.textContent = "not connected; trying again";
      if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(url, handlers), 3000);
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data), event));
    }
    source.addEventListener("full", (event) => {
      source.close();
      connection.textContent = `${JSON.parse(event.data).error}; this one does not follow the run`;
    });
  };

  const alerts = el("div", { id: "alerts", style: { marginTop: "8px" } });
  const addAlert = (alert) => {
    if (hl.data.live.name && hl.data.live.name !== alert.run) return;
    const run = hl.data.live.name ? "" : `${alert.run}: `;
    const line = el("p", { class: "alert", style: { color: "var(--bad)", fontSize: "14px" } }, el("b", {}, "Alert "),
      `${hl.date(alert.time)}  ${run}${alert.text} (rule: ${alert.rule})`);
    alerts.prepend(line);
    while (alerts.children.length > 8) alerts.lastChild.remove();
  };

  /* -- the page of one run */

  const ACTIONS = [["save", "Save now"], ["validate", "Validate now"], ["stop_after_step", "Stop after this step"],
    ["stop_after_epoch", "Stop after this epoch"]];
  const DONE = { save: "saved", validate: "validated", stop_after_step: "stopped", stop_after_epoch: "stopped" };
  const REFRESH = 10, KEPT = 200, POINTS = 4000;

  const runPage = () => {
    const id = hl.data.live.id;
    let state = hl.data.live.state, offset = hl.data.live.offset, recent = [], refreshed = now(), planned = null, due = 0, seen = null;
    const answers = el("div", { id: "orders" }), sentence = el("span", { id: "sentence" }), message = el("span", { class: "note", id: "message" });

    const act = async (name) => {
      message.textContent = "";
      try {
        const answer = await fetch(address(`/api/runs/${id}/actions`), { method: "POST",
          headers: { "Content-Type": "application/json", "X-Hookline-Token": token }, body: JSON.stringify({ action: name }) });
        const found = await answer.json();
        if (!answer.ok) { message.textContent = found.error; return; }
        state.orders = [...state.orders.filter((order) => order.id !== found.id), found];
      } catch (error) {
        message.textContent = "the server does not answer";
      }
      draw();
    };
    const buttons = ACTIONS.map(([name, label]) => {
      let asked = null;
      const button = el("button", { "data-action": name, on: { click: () => {
        if (!name.startsWith("stop") || asked) {
          clearTimeout(asked);
          asked = null;
          button.textContent = label;
          act(name);
          return;
        }
        button.textContent = "Really stop? Click again";
        asked = setTimeout(() => { asked = null; button.textContent = label; }, 4000);
      } } }, label);
      return button;
    });
    const hint = el("span", { class: "note" }, "To ask the run for something, open the address that hookline watch shows: it has the token.");
    const box = el("section", { id: "live", style: { marginTop: "14px" } }, el("div", { class: "card" },
      el("div", { class: "row" }, el("span", {}, sentence, "  ", connection), el("span", { class: "row buttons" }, token ? buttons : hint)),
      message, answers, alerts));

    const describe = (order) => {
      const what = (ACTIONS.find(([name]) => name === order.name) || [0, order.name])[1];
      const at = order.step === undefined ? "" : ` at step ${hl.number(order.step)}`;
      if (order.state === "done") return `${what}: ${DONE[order.name] || "done"}${at}${order.file ? ` (${order.file})` : ""}`;
      if (order.state === "refused") return `${what}: refused${at}: ${order.reason}`;
      return state.name === "running" || state.name === "unknown" ? `${what}: asked, waiting for the run` : `${what}: not answered`;
    };
    const draw = () => {
      const quiet = seen === null ? state.written : seen;
      const running = state.name === "running";
      const steps = hl.data.runs[0].steps;
      sentence.replaceChildren(badge(state.name), "  ", running ? `step ${hl.number(Math.max(steps, state.step))}, last record ${age(quiet)}` :
        `${state.text}; it last wrote something ${age(state.written)}`);
      buttons.forEach((button) => { button.disabled = !(running || state.name === "unknown"); });
      answers.replaceChildren(...state.orders.slice(-5).reverse().map((order) => el("p", { class: "note", "data-order": order.state }, describe(order))));
      if (running && state.started) hl.setFact(hl.data.runs[0], "duration", duration(hl.data.runs[0].seconds + now() - hl.data.made));
      const head = document.getElementById("status");
      if (head) { head.textContent = state.name; head.className = "badge " + state.name; }
      document.title = `${running ? "" : state.name + ": "}${hl.data.title} · hookline`;
    };
    const place = () => {
      const header = document.querySelector("#page > header"), footer = document.querySelector("#page > footer");
      if (header) header.after(box);
      if (hl.data.live.several && header) {
        header.prepend(el("p", { class: "note" }, el("a", { href: address("/"), style: { color: "var(--accent)" } }, "all runs")));
      }
      if (footer) footer.textContent = "Made by hookline. This page follows the run; hookline report writes it as one file.";
      draw();
    };

    const add = (batch) => {
      const run = hl.data.runs[0];
      const last = new Map(run.metrics.map((metric) => [metric.name, metric.last ? metric.last[0] : -1]));
      const records = batch.records.map((record) => Object.fromEntries(Object.entries(record).filter(([name]) =>
        name === "step" || name === "epoch" || !(record.step <= (last.has(name) ? last.get(name) : -1)))));
      seen = now();
      if (records.length && hl.append(run.id, records.filter((record) => Object.keys(record).length > 1)) === false) refresh(1);
      if (run.metrics.some((metric) => metric.steps.length > POINTS)) refresh(REFRESH);
    };
    const isBusy = () => {
      const active = document.activeElement;
      return (active && ["INPUT", "SELECT"].includes(active.tagName) && active.type !== "checkbox") || String(window.getSelection()) !== "";
    };
    /* Read the whole page again: verdict, summary, checkpoints. Not while the reader types or drags something. */
    const refresh = (seconds) => {
      const wanted = Math.max(refreshed + seconds, now() + 0.2);
      if (planned !== null && due <= wanted) return;
      clearTimeout(planned);
      due = wanted;
      planned = setTimeout(async () => {
        planned = null;
        if (isBusy()) { refreshed = now(); refresh(3); return; }
        refreshed = now();
        try {
          const answer = await fetch(address(`/api/runs/${id}`), { headers: token ? { "X-Hookline-Token": token } : {} });
          if (!answer.ok) { message.textContent = (await answer.json()).error; return; }
          const data = await answer.json();
          offset = data.live.offset;
          state = data.live.state;
          hl.show(data);
          recent.filter((batch) => batch.end > offset).forEach(add);
          draw();
        } catch (error) {
          refresh(REFRESH);
        }
      }, (due - now()) * 1000);
    };

    hl.listeners.push(place);
    place();
    hl.data.live.alerts.forEach(addAlert);
    const SHOWN = new Set(["start", "save", "stop", "signal", "warning", "failure", "end"]);
    follow(() => address(`/api/runs/${id}/stream`, { offset: String(Math.max(offset, ...recent.map((batch) => batch.end))) }), {
      records: (batch) => {
        recent = [...recent, batch].slice(-KEPT);
        add(batch);
        draw();
        if (now() - refreshed > 6 * REFRESH) refresh(REFRESH);
      },
      state: (found) => { state = found; if (found.name !== hl.data.runs[0].status) refresh(1); draw(); },
      journal: (event) => { if (SHOWN.has(event.kind)) refresh(event.kind === "save" || event.kind === "warning" ? REFRESH : 1); },
      reload: () => { recent = []; refresh(1); },
      alert: addAlert,
    });
    setInterval(draw, 2000);
  };

  /* -- the list of runs */

  const listPage = () => {
    const data = hl.data, rows = new Map(data.list.map((row) => [row.id, row]));
    const page = document.getElementById("page");
    const ORDER = ["running", "unknown", "killed", "failed", "stopped", "finished"];
    const columns = [
      { name: "state", show: badge },
      { name: "run", show: (value, row) => el("a", { href: address(`/runs/${row[row.length - 1].id}`), style: { color: "var(--accent)" } }, value) },
      { name: "step", number: true },
      { name: "newest value", number: true, show: (value, row) => {
        const newest = row[row.length - 1].newest;
        return newest ? `${newest.name} ${newest.value === null ? "NaN" : hl.number(newest.value)}` : "–";
      } },
      { name: "last written", number: true, show: age }, { name: "started", number: true, show: age },
      { name: "what happened", show: (value) => el("span", { class: "wrapped" }, value) }, { name: "host", show: String },
    ];
    let waiting = null;
    const draw = () => {
      waiting = null;
      const all = [...rows.values()].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state) ||
        one.name.localeCompare(other.name, "en", { numeric: true }));
      const counts = ORDER.map((name) => [name, all.filter((row) => row.state === name).length]).filter(([, count]) => count);
      const cells = all.map((row) => [row.state, row.name, row.step, row.newest && row.newest.value, row.written, row.started,
        row.state === "running" ? "" : row.text, row.host, row]);
      page.replaceChildren(
        el("header", {}, el("h1", {}, `Runs in ${data.title}`), el("p", { class: "note" }, `${data.path}  ·  hookline ${data.hookline}  ·  `, connection)),
        el("p", { id: "counts", style: { margin: "14px 0" } }, counts.flatMap(([name, count]) => [badge(name), ` ${count}   `])),
        el("section", { id: "list" }, el("div", { class: "card" }, hl.table("list", columns, cells))), alerts);
    };
    const later = () => { if (waiting === null) waiting = setTimeout(draw, 300); };
    document.title = `${data.title} · hookline`;
    draw();
    data.live.alerts.forEach(addAlert);
    follow(() => address("/api/stream"), {
      runs: (change) => {
        change.runs.forEach((row) => rows.set(row.id, row));
        change.gone.forEach((id) => rows.delete(id));
        later();
      },
      alert: addAlert,
    });
    setInterval(later, 5000);
  };

  if (hl.data.kind === "list") listPage();
  else runPage();
})();
