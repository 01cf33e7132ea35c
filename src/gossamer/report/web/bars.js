/* gossamer.bars(element, spec): one stacked horizontal bar for each row, with its parts' legend.

   spec = {
     title: "Bytes by phase", label: "sent so far",
     parts: [{key: "forward", name: "forward", colour: "var(--forward)"}, ...],    // gossamer.PHASES by default
     rows: [{name: "agent 3", colour: gossamer.agentColour(3), values: {forward: 1200, ...}}],    // colour: a dot, or none
     format: gossamer.bytes,
     legend: true,
     scale: "shared" or "own",     // lengths in proportion to the longest row, or each bar over the whole width
     empty: "nothing sent yet",
   }
   Returns {update(spec)} as gossamer.chart does. Each bar names its parts and their shares in its accessible label. */
"use strict";

gossamer.PHASES = ["forward", "backward", "consensus", "evaluation", "protocol"].map((key) => ({
  key, name: key, colour: `var(--${key})`,
}));

gossamer.bars = function (element, spec) {
  const {node, setText, setStyle} = gossamer;
  const now = {
    title: "", label: "", parts: gossamer.PHASES, rows: [], format: gossamer.bytes, scale: "shared", legend: true,
    empty: "nothing sent yet", ...spec,
  };
  const title = node("h3", {});
  const label = node("span", {class: "label"});
  const legend = node("div", {class: "keys"});
  const list = node("ul", {class: "rows"});
  const nothing = node("p", {class: "nothing"});
  element.classList.add("bars");
  element.replaceChildren(node("div", {class: "head"}, title, label), legend, list, nothing);

  const sum = (values) => now.parts.reduce((total, part) => total + (values[part.key] || 0), 0);

  function makeRow(one) {
    const dot = one.colour ? node("i", {class: "dot", style: {background: one.colour}}) : null;
    const bar = node("span", {class: "bar", role: "img"}, ...now.parts.map((part) => node("i", {"data-part": part.key})));
    return node("li", {"data-name": one.name}, node("span", {class: "name"}, dot, node("span", {text: one.name})), bar, node("b", {}));
  }

  function draw() {
    setText(title, now.title);
    setText(label, now.label);
    const totals = now.rows.map((one) => sum(one.values));
    const most = Math.max(0, ...totals);
    nothing.hidden = most > 0;
    setText(nothing, now.empty);
    const used = now.parts.filter((part) => now.rows.some((one) => one.values[part.key]));
    legend.hidden = !now.legend;
    title.parentNode.hidden = !now.title;
    if (legend.dataset.parts !== used.map((part) => part.key).join()) {
      legend.dataset.parts = used.map((part) => part.key).join();
      legend.replaceChildren(
        ...used.map((part) => node("span", {class: "key", "data-part": part.key}, node("i", {style: {background: part.colour}}),
          node("span", {text: part.name}), node("b", {})))
      );
    }
    for (const key of legend.children) {
      setText(key.lastChild, now.rows.length === 1 ? now.format(now.rows[0].values[key.dataset.part] || 0) : "");
    }
    const names = most ? now.rows.map((one) => one.name) : [];
    if ([...list.children].map((row) => row.dataset.name).join("\n") !== names.join("\n")) {
      list.replaceChildren(...(most ? now.rows : []).map(makeRow));
    }
    [...list.children].forEach((row, place) => {
      const {values} = now.rows[place];
      const whole = now.scale === "shared" ? most : totals[place];
      const bar = row.children[1];
      now.parts.forEach((part, k) => {
        const share = whole ? (values[part.key] || 0) / whole : 0;
        setStyle(bar.children[k], "width", `${(100 * share).toFixed(3)}%`);
        setStyle(bar.children[k], "background", part.colour);
      });
      const said = used.map((part) => `${part.name} ${now.format(values[part.key] || 0)}`).join(", ");
      bar.setAttribute("aria-label", said);
      bar.setAttribute("title", said);
      setText(row.lastChild, now.format(totals[place]));
    });
  }

  const soon = gossamer.later(draw);
  draw();
  return {
    update(changed) {
      Object.assign(now, changed);
      soon();
    },
  };
};
