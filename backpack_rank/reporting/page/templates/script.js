"use strict";
(() => {
  const root = document.documentElement;
  root.classList.remove("plain");
  root.dataset.errors = "0";
  addEventListener("error", () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); });

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
    form.addEventListener("change", () => { update(gallery); report(); });
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
  const size = (element) => { const box = element.getBoundingClientRect(); return box.width * box.height; };
  const drawn = (figure) => {
    const parts = figure.querySelectorAll(".dot, .part");
    return size(figure) > 0 && parts.length > 0 && [...parts].some((part) => size(part) > 0);
  };
  function report() {
    const visible = [...document.querySelectorAll(".figure")].filter((figure) => !figure.closest("[hidden]"));
    root.dataset.figures = String(visible.length);
    root.dataset.figuresDrawn = String(visible.filter(drawn).length);
    root.dataset.overflow = String(root.scrollWidth > root.clientWidth);
  }
  addEventListener("resize", report);
  if (document.readyState === "complete") report(); else addEventListener("load", report);
})();
