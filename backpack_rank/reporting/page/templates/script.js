"use strict";
(() => {
  const root = document.documentElement;
  root.classList.remove("plain");
  root.dataset.errors = "0";
  const failed = () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); };
  addEventListener("error", failed);

  // Charts: each is drawn when it is first seen, in the colours and to the width of the page.
  const look = JSON.parse(document.querySelector("#look")?.textContent ?? "null");
  const night = matchMedia("(prefers-color-scheme: dark)");
  const coloured = (value) => night.matches
    ? JSON.parse(JSON.stringify(value), (_, part) => (typeof part === "string" && look.dark[part]) || part) : value;
  const draw = (figure) => {
    const place = figure.querySelector(".chart");
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const font = getComputedStyle(document.body).fontFamily;
    const config = coloured({ ...look.config, font, background: "transparent" });
    const ranges = coloured(spec);
    config.legend.columns = Math.max(1, Math.floor(place.clientWidth / 150));
    config.legend.labelLimit = place.clientWidth - 40;
    const options = { mode: "vega-lite", actions: false, renderer: "svg", ast: true, config,
      tooltip: { theme: night.matches ? "dark" : "light" } };
    figure.dataset.drawn = "";
    vegaEmbed(place, { ...ranges, width: "container", autosize: { type: "fit-x", contains: "padding" } }, options)
      .then(() => { figure.dataset.drawn = "yes"; report(); }, (error) => { failed(); console.error(error); });
  };
  const visible = () => [...document.querySelectorAll(".figure")].filter((one) => one.offsetParent !== null);
  const drawAll = () => { for (const one of visible()) if (!("drawn" in one.dataset)) draw(one); report(); };
  const again = () => { for (const one of document.querySelectorAll(".figure")) delete one.dataset.drawn; drawAll(); };
  night.addEventListener("change", again);

  // Selectors: one panel of a gallery is visible; a choice that does not exist with the earlier ones is disabled.
  const panelsOf = (gallery) => [...gallery.querySelectorAll(".panel")].map(
    (panel) => ({ panel, choice: JSON.parse(panel.dataset.choice) }));
  const update = (gallery) => {
    const selects = [...gallery.querySelectorAll("select")];
    let left = panelsOf(gallery);
    selects.forEach((select, position) => {
      const possible = new Set(left.map((one) => one.choice[position]));
      for (const option of select.options) option.disabled = !possible.has(option.value);
      if (!possible.has(select.value)) select.value = left[0].choice[position];
      left = left.filter((one) => one.choice[position] === select.value);
    });
    for (const one of panelsOf(gallery)) one.panel.hidden = one.panel !== left[0].panel;
  };
  for (const gallery of document.querySelectorAll(".gallery")) {
    const form = gallery.querySelector(".selectors");
    if (!form) continue;
    form.hidden = false;
    form.addEventListener("change", () => { update(gallery); drawAll(); });
    update(gallery);
  }

  // On paper everything is open, afterwards as it was.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });

  // What a check of the page reads: visible figures, those of them that were drawn, and whether the page is too wide.
  function report() {
    const shown = visible();
    root.dataset.figures = String(shown.length);
    root.dataset.figuresDrawn = String(shown.filter((one) => one.dataset.drawn === "yes").length);
    root.dataset.overflow = String(root.scrollWidth > root.clientWidth);
  }
  addEventListener("resize", report);
  drawAll();
})();
