/* Draws what a report asks for: <figure data-draw="chart|map|bars"> with its specification in a JSON script inside.

   A specification may name functions of core.js as `format` and `xFormat`. In place of `series` a chart may have
   choices: {train: series, validation: series, test: series} and the `choice` that is shown first; a button for each
   stands below it. Printing unfolds what is folded. */
"use strict";

(function () {
  const {node} = gossamer;

  function draw(figure) {
    const spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    for (const name of ["format", "xFormat"]) if (spec[name]) spec[name] = gossamer[spec[name]];
    const {choices, choice, ...plain} = spec;
    const place = node("div", {});
    const parts = [place];
    if (choices) {
      const names = Object.keys(choices);
      const first = choice || names[0];
      const buttons = names.map((name) => node("button", {type: "button", text: name, "aria-pressed": String(name === first)}));
      parts.push(node("div", {class: "choices", role: "group", "aria-label": `${plain.title} of which vertices`}, ...buttons));
      figure.replaceChildren(...parts);
      const chart = gossamer[figure.dataset.draw](place, {...plain, series: choices[first]});
      buttons.forEach((button, k) =>
        button.addEventListener("click", () => {
          for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
          chart.update({series: choices[names[k]]});
        })
      );
      return;
    }
    figure.replaceChildren(...parts);
    gossamer[figure.dataset.draw](place, plain);
  }

  document.querySelectorAll("figure[data-draw]").forEach(draw);
  document.documentElement.classList.add("drawn");
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((one) => one.setAttribute("open", ""));
  });
})();
