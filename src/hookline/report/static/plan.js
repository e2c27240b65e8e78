"use strict";
/* The picture of the plan: the loop as nested boxes, its points from top to bottom, the hooks of a point in order.
   The bar in a hook is what it cost: the longest bar is the dearest call of the plan. */
(() => {
  const hl = window.hookline, el = hl.el, state = hl.state;
  const WORK = new Map([["forward", "your step"], ["backward", "loss.backward()"], ["optimizer_step", "optimizer.step()"]]);

  const isEmpty = (node) => (node.point !== undefined ? !node.hooks.length :
    !node.around.length && node.children.every(isEmpty));

  /* What each hook cost at each point, and the most of them in a tree. Any text may be a name. */
  const costsOf = (tree, hooks) => {
    const known = new Map(hooks.map((hook) => [hook.name, new Map(Object.entries(hook.points || {}))]));
    const at = (hook, point) => (known.get(hook.name) || new Map()).get(point);
    const largest = (node) => Math.max(0, ...(node.hooks || node.around).map((hook) => (at(hook, pointOf(node)) || {}).seconds || 0),
      ...(node.children || []).map(largest));
    return { at, most: largest(tree) };
  };
  const pointOf = (node) => node.point ?? `around_${node.scope}`;

  const chip = (hook, number, cost, most) => {
    const facts = [`priority ${hook.priority}`, hook.every, hook.why, hook.where,
      cost && `${hl.number(cost.calls)} calls, ${hl.seconds(cost.seconds)} in total, ${hl.seconds(cost.mean)} each, at most ${hl.seconds(cost.longest)}`];
    const share = cost && most ? cost.seconds / most : null;
    return el("span", { class: "chip", title: facts.filter(Boolean).join("\n"), "data-hook": hook.name },
      el("span", { class: "chip-number" }, String(number + 1)), el("span", { class: "chip-name" }, hook.name),
      el("span", { class: "chip-every" }, hook.every),
      share !== null && el("span", { class: "cost" },
        el("span", { class: "cost-bar", style: { width: Math.max(160 * share, 1) + "px" } }), hl.seconds(cost.seconds)));
  };

  const chips = (node, costs) => el("span", { class: "chips" }, (node.hooks || node.around).map((hook, number) =>
    chip(hook, number, costs.at(hook, pointOf(node)), costs.most)));

  const draw = (node, costs) => {
    if (!state.open.get("empty points") && isEmpty(node) && !WORK.has(node.scope)) return null;
    if (node.point !== undefined) {
      return el("div", { class: "point" + (node.hooks.length ? "" : " idle"), "data-point": node.point },
        el("span", { class: "point-name" }, node.point), chips(node, costs));
    }
    const inside = node.children.map((child) => draw(child, costs)).filter(Boolean);
    return el("div", { class: "scope", "data-scope": node.scope },
      el("div", { class: "scope-head" }, el("span", { class: "scope-name" }, node.scope),
        node.repeats && el("span", { class: "scope-often" }, "↻ " + node.repeats),
        WORK.has(node.scope) && el("span", { class: "scope-work" }, WORK.get(node.scope)),
        node.around.length > 0 && chips(node, costs)),
      inside);
  };

  hl.planPicture = (tree, hooks) => {
    const costs = costsOf(tree, hooks);
    const toggle = el("label", { class: "choice" },
      el("input", { type: "checkbox", checked: Boolean(state.open.get("empty points")), on: { change: (event) => {
        state.open.set("empty points", event.target.checked);
        picture.replaceWith(picture = paint());
      } } }), "points without hooks");
    const paint = () => el("div", { class: "plan" }, draw(tree, costs) || el("p", { class: "empty" }, "No hook runs at any point."));
    let picture = paint();
    const note = costs.most ? "The bars show the total time of each hook at each point." :
      "Read from top to bottom: this is the order in which a run calls the hooks.";
    return el("div", { class: "card" }, el("div", { class: "row" }, el("span", { class: "note" }, note), toggle), picture);
  };
})();
